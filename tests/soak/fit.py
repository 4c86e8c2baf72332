"""Fits a straight line to samples over time, and tells growth from noise.

The first quarter of a run is warm-up, and left out: caches fill, tables reach their size. The rest is cut into BATCHES
parts of equal length, and the line goes through their means. Neighbouring samples depend on each other, means of long
parts hardly do, so the error of the slope is that of ordinary least squares.
"""
import dataclasses
import math

WARM_UP = 0.25  # of the run
BATCHES = 20
LEAST_SAMPLES = 3 * BATCHES  # in the run without its warm-up
FACTOR = 5  # a slope counts if it is more than so many of its errors


@dataclasses.dataclass(frozen=True)
class Line:
    begin: float  # the value of the line at the end of the warm-up
    slope: float  # in a second
    error: float  # the standard error of the slope
    seconds: float  # that the line covers

    @property
    def growth(self):
        return self.slope * self.seconds

    def has_grown(self, least):
        """Beyond its error, and by more than `least` over the time that the line covers."""
        return self.slope > FACTOR * self.error and self.growth > least


def line_of(samples):
    """The line through (second, value) samples in order. ValueError: there are too few."""
    if not samples:
        raise ValueError("no samples")
    first, last = samples[0][0], samples[-1][0]
    begin = first + WARM_UP * (last - first)
    kept = [sample for sample in samples if sample[0] >= begin]
    if len(kept) < LEAST_SAMPLES:
        raise ValueError(f"{len(kept)} samples after the warm-up, at least {LEAST_SAMPLES} are needed")
    cuts = [round(len(kept) * part / BATCHES) for part in range(BATCHES + 1)]
    batches = [kept[cut:after] for cut, after in zip(cuts, cuts[1:])]
    times = [math.fsum(second for second, _ in batch) / len(batch) for batch in batches]
    values = [math.fsum(value for _, value in batch) / len(batch) for batch in batches]
    time, value = math.fsum(times) / BATCHES, math.fsum(values) / BATCHES
    spread = math.fsum((t - time) ** 2 for t in times)
    slope = math.fsum((t - time) * (v - value) for t, v in zip(times, values)) / spread
    rest = math.fsum((v - value - slope * (t - time)) ** 2 for t, v in zip(times, values))
    return Line(value + slope * (begin - time), slope, math.sqrt(rest / (BATCHES - 2) / spread), last - begin)
