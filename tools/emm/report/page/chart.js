// Live memory as a stack of groups, and what was reserved above it.

const margin = { left: 66, right: 10, top: 22, bottom: 24 };

function ticksOf(from, to, most, base) {
  const rough = (to - from) / most;
  let step = base === 2 ? 2 ** Math.round(Math.log2(Math.max(rough, 1))) : 10 ** Math.floor(Math.log10(rough));
  if (base === 10) {
    step *= [1, 2, 5, 10].find((factor) => step * factor >= rough);
  }
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    ticks.push(at);
  }
  return { ticks, step };
}

// What the charts of one kind of memory share: the axis, the part of it that is shown, the moment
// of the map.
class View {
  constructor(memory, group) {
    this.buckets = memory.buckets;
    this.group = group;
    this.axis = "time";
    this.moment = null;
    this.listeners = [];
    this.whole();
  }
  get first() { return this.buckets["first_" + this.axis]; }
  get last() { return this.buckets["last_" + this.axis]; }
  // Of the recording, which may end with failures.
  get end() {
    const last = this.last[this.last.length - 1];
    return this.axis === "time" ? Math.max(last, page.document.figures.end_ns) : last;
  }
  limits() {
    const begin = this.first[0], end = this.end;
    const room = Math.max(end - begin, 1) * 0.01;
    return [begin - room, end + room];
  }
  whole() {
    [this.from, this.to] = this.limits();
  }
  showAll() {
    this.whole();
    this.changed();
  }
  show(from, to) {
    const [begin, end] = this.limits();
    const least = Math.min(this.axis === "time" ? 20 : 4, end - begin);
    const length = Math.max(least, Math.min(to - from, end - begin));
    this.from = Math.max(begin, Math.min(from, end - length));
    this.to = this.from + length;
    this.changed();
  }
  zoom(factor, around) {
    const center = around === undefined ? (this.from + this.to) / 2 : around;
    this.show(center - (center - this.from) * factor, center + (this.to - center) * factor);
  }
  move(part) {
    const by = (this.to - this.from) * part;
    this.show(this.from + by, this.to + by);
  }
  changed() {
    this.listeners.forEach((listener) => listener());
  }
}

class MemoryChart {
  constructor(parent, view, memory, figures, replay, shared) {
    Object.assign(this, { view, memory, figures, replay, shared });
    this.columns = [];
    const { canvas, redraw } = canvasIn(parent, 320, (context, width, height) => this.draw(context, width, height));
    this.canvas = canvas;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "memory over time; plus and minus zoom, arrows move");
    view.listeners.push(redraw);
    this.redraw = redraw;
    this.listen();
  }

  get groups() {
    return groupsOf(this.memory, this.view.group);
  }

  x(value) {
    const { from, to } = this.view;
    return margin.left + (value - from) / (to - from) * this.width;
  }
  valueAt(x) {
    const { from, to } = this.view;
    return from + (x - margin.left) / this.width * (to - from);
  }
  y(value) {
    return margin.top + this.height * (1 - value / this.most);
  }

  // For each column of the screen the bucket with the most in it, or the state that lasts.
  fill() {
    const { view, memory } = this, buckets = memory.buckets, { first, last } = view;
    this.columns = new Array(Math.ceil(this.width)).fill(null);
    const put = (column, bucket, lasts) => {
      const live = lasts ? buckets.end[bucket] : buckets.high[bucket];
      const reserved = this.replay ? this.replay.reserved[lasts ? "end" : "high"][bucket] : 0;
      const there = this.columns[column];
      if (!there) {
        this.columns[column] = { bucket, lasts, live, reserved, low: lasts ? live : buckets.low[bucket] };
        return;
      }
      there.low = Math.min(there.low, lasts ? live : buckets.low[bucket]);
      there.reserved = Math.max(there.reserved, reserved);
      if (live > there.live) {
        Object.assign(there, { bucket, lasts, live });
      }
    };
    const column = (value) => Math.floor(this.x(value) - margin.left);
    const end = this.columns.length - 1;
    for (let i = Math.max(0, lastNotAbove(first, view.from)); i < first.length && first[i] <= view.to; i++) {
      for (let c = Math.max(0, column(first[i])); c <= Math.min(end, column(last[i])); c++) {
        put(c, i, false);
      }
      const until = i + 1 < first.length ? column(first[i + 1]) - 1 : column(view.end);
      for (let c = Math.max(0, column(last[i]) + 1); c <= Math.min(end, until); c++) {
        put(c, i, true);
      }
    }
  }

  draw(context, width, height) {
    this.width = width - margin.left - margin.right;
    this.height = height - margin.top - margin.bottom;
    this.fill();
    const shown = this.columns.filter((column) => column);
    const own = Math.max(1, ...shown.map((column) => Math.max(column.live, column.reserved)));
    this.most = 1.04 * (this.shared ? Math.max(own, this.shared(this.view)) : own);
    this.drawGrid(context, width);
    this.drawStack(context);
    if (this.replay) {
      this.drawReserved(context);
    }
    this.drawMarks(context);
    this.drawPeak(context);
  }

  drawGrid(context, width) {
    const { view } = this;
    context.fillStyle = color("muted");
    context.strokeStyle = color("grid");
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of ticksOf(0, this.most, 5, 2).ticks) {
      const y = Math.round(this.y(value)) + 0.5;
      context.beginPath();
      context.moveTo(margin.left, y);
      context.lineTo(width - margin.right, y);
      context.stroke();
      context.fillText(tickBytes(value), margin.left - 6, y);
    }
    const { ticks, step } = ticksOf(view.from, view.to, Math.max(2, this.width / 110), 10);
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const value of ticks) {
      const text = view.axis === "time" ? moment(value, step) : count(value);
      const half = context.measureText(text).width / 2;
      const x = Math.max(margin.left + half - 20, Math.min(this.x(value), width - half - 2));
      if (this.x(value) >= margin.left) {
        context.fillText(text, x, margin.top + this.height + 7);
      }
    }
  }

  drawStack(context) {
    const { labels, high, end } = this.groups;
    const colors = labels.map((_, group) => groupColor(group, this.groups));
    this.columns.forEach((column, i) => {
      if (!column) {
        return;
      }
      const stack = (column.lasts && end[column.bucket]) || high[column.bucket];
      let below = 0;
      for (let group = 0; group < labels.length; group++) {
        if (stack[group] > 0) {
          const top = this.y(below + stack[group]);
          context.fillStyle = colors[group];
          context.fillRect(margin.left + i, top, 1.02, this.y(below) - top);
          below += stack[group];
        }
      }
    });
  }

  // Hatched from what is live up to what is reserved.
  drawReserved(context) {
    context.save();
    context.beginPath();
    this.columns.forEach((column, i) => {
      if (column && column.reserved > column.live) {
        const top = this.y(column.reserved);
        context.rect(margin.left + i, top, 1.02, this.y(column.live) - top);
      }
    });
    context.fillStyle = color("hatch-ground");
    context.fill();
    context.clip();
    context.strokeStyle = color("hatch");
    context.lineWidth = 1;
    context.beginPath();
    for (let x = margin.left - this.height; x < margin.left + this.width; x += 7) {
      context.moveTo(x, margin.top + this.height);
      context.lineTo(x + this.height, margin.top);
    }
    context.stroke();
    context.restore();
    context.strokeStyle = color("reserved");
    context.lineWidth = 1.5;
    context.beginPath();
    let drawing = false;
    this.columns.forEach((column, i) => {
      if (column) {
        context[drawing ? "lineTo" : "moveTo"](margin.left + i, this.y(column.reserved));
        context.lineTo(margin.left + i + 1, this.y(column.reserved));
      }
      drawing = Boolean(column);
    });
    context.stroke();
  }

  // A mark has a time; on the axis of events it stands where its time is.
  drawMarks(context) {
    const { view } = this;
    for (const [time, , isFailure] of page.document.marks) {
      const bucket = Math.max(0, lastNotAbove(view.buckets.first_time, time));
      const value = view.axis === "time" ? time : view.buckets.first_event[bucket];
      if (value < view.from || value > view.to) {
        continue;
      }
      const x = this.x(value);
      context.fillStyle = color(isFailure ? "failure" : "muted");
      if (isFailure) {
        context.beginPath();
        context.moveTo(x - 5, margin.top - 9);
        context.lineTo(x + 5, margin.top - 9);
        context.lineTo(x, margin.top);
        context.fill();
      } else if (page.document.marks.length <= 200) {
        context.fillRect(x, margin.top + this.height, 1, 5);
      }
    }
  }

  line(context, value, text, style) {
    const x = Math.round(this.x(value)) + 0.5;
    if (x < margin.left || x > margin.left + this.width) {
      return;
    }
    context.strokeStyle = style;
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(x, margin.top);
    context.lineTo(x, margin.top + this.height);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = style;
    context.textBaseline = "bottom";
    const half = context.measureText(text).width / 2;
    context.textAlign = "center";
    context.fillText(text, Math.max(margin.left + half, Math.min(x, margin.left + this.width - half)), margin.top - 3);
  }

  drawPeak(context) {
    const { view, figures } = this;
    this.line(context, view.axis === "time" ? figures.peak_time_ns : figures.peak_event,
              "peak " + bytes(figures.peak_live_bytes) + " live", color("ink"));
    if (view.moment) {
      this.line(context, view.axis === "time" ? view.moment.time : view.moment.event, "", color("accent"));
    }
    if (this.selected) {
      const [from, to] = this.selected;
      context.fillStyle = color("selection");
      context.fillRect(Math.min(from, to), margin.top, Math.abs(to - from), this.height);
    }
  }

  linesAt(x) {
    const column = this.columns[Math.floor(x - margin.left)];
    if (!column) {
      return null;
    }
    const { labels, high, end } = this.groups, { buckets } = this.memory, i = column.bucket;
    const stack = (column.lasts && end[i]) || high[i];
    const value = this.valueAt(x);
    const when = this.view.axis === "time" ? moment(value, (this.view.to - this.view.from) / this.width)
                                           : "event " + count(value);
    const events = buckets.last_event[i] - buckets.first_event[i] + 1;
    const span = column.low < column.live ? " (at least " + bytes(column.low) + ")" : "";
    const lines = [when, "live: " + bytes(column.live) + span];
    if (this.replay) {
      lines.push("reserved: " + bytes(column.reserved));
    }
    labels.forEach((label, group) => {
      if (stack[group] > 0) {
        lines.push("  " + plainName(label) + ": " + bytes(stack[group]));
      }
    });
    if (!column.lasts && events > 1) {
      lines.push("the most of " + count(events) + " events");
    }
    return lines;
  }

  listen() {
    const { canvas, view } = this;
    const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("pointermove", (event) => {
      if (this.selected) {
        this.selected[1] = Math.max(margin.left, Math.min(at(event), margin.left + this.width));
        this.redraw();
      }
    });
    tipOn(canvas, (event) => this.linesAt(at(event)));
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch" && event.button === 0) {
        canvas.setPointerCapture(event.pointerId);
        this.selected = [at(event), at(event)];
      }
    });
    canvas.addEventListener("pointerup", () => {
      const selected = this.selected;
      this.selected = null;
      if (selected && Math.abs(selected[1] - selected[0]) > 5) {
        const [from, to] = selected.map((x) => this.valueAt(x)).sort((one, other) => one - other);
        view.show(from, to);
      } else {
        this.redraw();
      }
    });
    canvas.addEventListener("dblclick", () => view.showAll());
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.shiftKey) {
        event.preventDefault();
        view.zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, this.valueAt(at(event)));
      }
    }, { passive: false });
    const keys = { "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2),
                   ArrowLeft: () => view.move(-0.25), ArrowRight: () => view.move(0.25),
                   "0": () => view.showAll() };
    canvas.addEventListener("keydown", (event) => {
      if (keys[event.key]) {
        event.preventDefault();
        keys[event.key]();
      }
    });
  }
}

function drawLegend(parent, groups, peak) {
  parent.replaceChildren();
  groups.labels.forEach((label, group) => {
    const item = add(parent, "span", "legend");
    const swatch = add(item, "i");
    swatch.style.background = groupColor(group, groups);
    const share = peak === null || groups.bytes[group] === 0 ? "" : "  " + percent(groups.bytes[group], peak);
    const text = plainName(label) + share;
    add(item, "span", "", text).title = shortened(label, 500);
  });
}

// A chart over the steps of a replay, from 0 to `right` and `top`. `paint` draws into it by the places
// of values, and `tell` has what the pointer is told of a step.
function stepChart(parent, height, right, { top, base, text }, paint, tell) {
  const inner = (width) => width - margin.left - margin.right;
  const { canvas } = canvasIn(parent, height, (context, width) => {
    const room = { width: inner(width), height: height - 34 };
    const x = (value) => margin.left + value / right * room.width;
    const y = (value) => 8 + room.height * (1 - value / top);
    const ticks = ticksOf(0, top, 4, base).ticks;
    paint(context, x, y, ticks);
    context.fillStyle = color("muted");
    context.textBaseline = "middle";
    context.textAlign = "right";
    ticks.forEach((value) => context.fillText(text(value), margin.left - 6, y(value)));
    context.textBaseline = "top";
    context.textAlign = "center";
    ticksOf(0, right, Math.max(2, room.width / 110), 10).ticks
      .forEach((value) => context.fillText(count(value), Math.min(x(value), width - 24), room.height + 14));
  });
  tipOn(canvas, (event) => {
    const box = canvas.getBoundingClientRect();
    return tell((event.clientX - box.left - margin.left) / inner(box.width) * right);
  });
}

// Lines that only rise, such as calls so far: [{name, x, y}].
function lineChart(parent, series, height) {
  const most = (axis) => Math.max(1, ...series.map((one) => one[axis][one[axis].length - 1]));
  const right = most("x");
  const paint = (context, x, y, ticks) => {
    context.strokeStyle = color("grid");
    ticks.forEach((value) => context.strokeRect(margin.left, Math.round(y(value)) + 0.5, x(right) - margin.left, 0));
    series.forEach((one, i) => {
      context.strokeStyle = color("group" + i % 9);
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(x(0), y(0));
      one.x.forEach((value, at) => {
        context.lineTo(x(value), y(at > 0 ? one.y[at - 1] : 0));
        context.lineTo(x(value), y(one.y[at]));
      });
      context.stroke();
    });
  };
  stepChart(parent, height, right, { top: most("y") * 1.05, base: 10, text: count }, paint, (at) =>
    ["event " + count(Math.max(0, at)), ...series.map((one) => {
      const i = lastNotAbove(one.x, at);
      return shortened(one.name, 60) + ": " + count(i < 0 ? 0 : one.y[i]);
    })]);
}

// What reserved memory was, at the moments at which the plugin was asked.
function partsChart(parent, samples, height) {
  const shades = { live: "group0", pending: "group3", cached: "cached", rest: "others" };
  const partsAt = (i) => {
    const [live, pending, cached] = [samples.live[i], samples.pending[i], samples.cached[i]];
    return Object.entries({ live, pending, cached, rest: Math.max(0, samples.reserved[i] - live - pending - cached) });
  };
  const last = samples.step.length - 1, right = Math.max(1, samples.step[last]);
  const paint = (context, x, y) => samples.step.forEach((step, i) => {
    const begin = Math.floor(x(step));
    const end = Math.max(begin + 1, Math.floor(x(i < last ? samples.step[i + 1] : right)));
    let below = 0;
    for (const [name, part] of partsAt(i)) {
      context.fillStyle = color(shades[name]);
      context.fillRect(begin, y(below + part), end - begin, y(below) - y(below + part));
      below += part;
    }
  });
  const top = Math.max(1, ...samples.reserved) * 1.05;
  stepChart(parent, height, right, { top, base: 2, text: tickBytes }, paint, (at) => {
    const i = Math.max(0, lastNotAbove(samples.step, at));
    return ["event " + count(samples.step[i]), "reserved: " + bytes(samples.reserved[i]),
            ...partsAt(i).map(([name, part]) => "  " + name + ": " + bytes(part))];
  });
}
