"""Line plots as SVG, in colours that can be read on a light page and on a dark one."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 800, 400, 70, 40, 230, 50
GREY = "#808080"
COLOURS = ["#d9534f", "#2f8fd0", "#3fa34d", "#c77f1a", "#8e6bbf", "#1fa39a", "#b0578d", "#7a8b2a",
           "#5b79c9", "#b5651d", "#4f9d69", "#9a6a6a"]


def round_step(least):
    """The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is not below `least`."""
    if least <= 0:
        return 1
    power = 10 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least)


class Axis:
    def __init__(self, values, begin, end, logarithmic):
        self.logarithmic = logarithmic
        self.low, self.high = min(values), max(values)
        if logarithmic:
            self.low = 10 ** math.floor(math.log10(self.low))
            self.high = 10 ** math.ceil(math.log10(self.high))
        else:
            self.step = round_step((self.high - self.low) / 4)
            self.low = math.floor(self.low / self.step) * self.step
            self.high = math.ceil(self.high / self.step) * self.step
        if self.low == self.high:
            self.high = self.low + 1
        self.begin, self.end = begin, end

    def scale(self, value):
        return math.log10(value) if self.logarithmic else value

    def at(self, value):
        low, high = self.scale(self.low), self.scale(self.high)
        share = (self.scale(value) - low) / (high - low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self):
        if self.logarithmic:
            low, high = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0 ** power for power in range(low, high + 1)]
        count = round((self.high - self.low) / self.step)
        return [self.low + self.step * i for i in range(count + 1)]


def text(x, y, words, anchor="start", size=12):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{GREY}">{escape(words)}</text>')


def number(value):
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def grid(x, y, x_ticks):
    parts = []
    for tick in y.ticks():
        at = y.at(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" '
                     f'stroke="{GREY}" stroke-opacity="0.3"/>')
        parts.append(text(LEFT - 6, at + 4, number(tick), "end"))
    for tick in x_ticks:
        parts.append(text(x.at(tick), HEIGHT - BOTTOM + 18, number(tick), "middle"))
    return parts


def lines(title, x_label, y_label, series, x_ticks=None, logarithmic=False):
    """`series`: a name and its points (x, y), for each line. No points at all: no plot."""
    points = [point for _, line in series for point in line]
    if not points:
        return None
    y_values = [y for _, y in points] + ([] if logarithmic else [0])
    x = Axis([x for x, _ in points], LEFT, WIDTH - RIGHT, False)
    y = Axis(y_values, HEIGHT - BOTTOM, TOP, logarithmic)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif">', text(LEFT, 22, title, size=15),
             *grid(x, y, x_ticks or x.ticks()),
             text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, "middle"),
             text(8, TOP - 6, y_label)]
    for i, (name, line) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = TOP + 18 * i
        parts.append(f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 30}" y1="{at}" '
                     f'y2="{at}" stroke="{colour}" stroke-width="3"/>')
        parts.append(text(WIDTH - RIGHT + 36, at + 4, name))
    return "\n".join([*parts, "</svg>", ""])
