// Live memory as a stack of groups, and the reserved memory above it.

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

class MemoryChart {
  constructor(parent, view, memory, figures, replay, shared) {
    Object.assign(this, { view, memory, figures, replay, shared });
    this.columns = [];
    const { canvas, redraw } = canvasIn(parent, 320, (context, width, height) => this.draw(context, width, height));
    this.canvas = canvas;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "memory over time; plus and minus zoom, arrows move, a click chooses a block");
    view.listeners.push(redraw);
    this.redraw = redraw;
    this.listen();
  }

  get groups() {
    return { labels: this.view.labels, ...this.view.level.stacks };
  }

  // A filter selects blocks, and reserved memory has none, so a filter hides it.
  get shownReplay() {
    return isOpen(this.view.filter) ? this.replay : null;
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

  // For each column of the screen, the bucket with the most bytes in it, or the state that lasts.
  fill() {
    const { view } = this, buckets = view.level, { first, last } = view;
    const reservedIn = this.shownReplay && view.reservedOf(this.shownReplay);
    this.columns = new Array(Math.ceil(this.width)).fill(null);
    const put = (column, bucket, lasts) => {
      const live = lasts ? buckets.end[bucket] : buckets.high[bucket];
      const reserved = reservedIn ? reservedIn[lasts ? "end" : "high"][bucket] : 0;
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
    this.drawBlocks(context);
    if (this.shownReplay) {
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
    const colors = colorsOf(labels);
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

  // Single blocks if there are few: a line on each, and a frame around the chosen one.
  drawBlocks(context) {
    const blocks = this.view.fewBlocks;
    context.lineWidth = 1;
    for (let begin = 0, end = 1; blocks.length > 0 && begin < this.columns.length; begin = end, end++) {
      const column = this.columns[begin], isSame = (other) => other && other.bucket === column.bucket && other.lasts === column.lasts;
      while (column && isSame(this.columns[end])) {
        end++;
      }
      if (column) {
        this.drawEdges(context, blocks, this.eventOf(column), margin.left + begin, margin.left + end);
      }
    }
  }
  drawEdges(context, blocks, event, left, right) {
    const { table, block: chosen } = this.view;
    let below = 0;
    for (const block of blocks.filter((one) => table.isLive(one, event))) {
      const bottom = this.y(below), top = this.y(below += table.size[block]);
      context.fillStyle = color(block === chosen ? "accent" : "card");
      if (bottom - top > 3 || block === chosen) {
        context.fillRect(left, top, right - left, block === chosen ? 2 : 0.6);
      }
      if (block === chosen) {
        context.fillRect(left, bottom - 2, right - left, 2);
      }
    }
  }

  eventOf(column) {
    const { level } = this.view;
    return column.lasts ? level.last_event[column.bucket] : level.high_event[column.bucket];
  }

  // Hatches the range between live and reserved memory.
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

  // A mark has a time; the axis of events shows it at the event of that time.
  drawMarks(context) {
    const { view } = this;
    for (const [time, , isFailure] of page.document.marks) {
      const value = view.axis === "time" ? time : view.table.eventAt(time);
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
    if (isOpen(view.filter)) {
      this.line(context, view.axis === "time" ? figures.peak_time_ns : figures.peak_event,
                "peak " + bytes(figures.peak_live_bytes) + " live", color("ink"));
    }
    this.line(context, view.valueOf(view.event), "", color("accent"));
    this.drawChosen(context);
    if (this.selected) {
      const [from, to] = this.selected;
      context.fillStyle = color("selection");
      context.fillRect(Math.min(from, to), margin.top, Math.abs(to - from), this.height);
    }
  }

  // How long the chosen block lived, as a bar on the axis.
  drawChosen(context) {
    const { view } = this, { table, block } = view;
    if (block >= 0) {
      const end = this.x(table.isUnfreed(block) ? view.end : view.valueOf(table.last[block]));
      const [from, to] = [this.x(view.valueOf(table.first[block])), end]
        .map((x) => Math.max(margin.left, Math.min(x, margin.left + this.width)));
      context.fillStyle = color("accent");
      context.fillRect(from, margin.top + this.height, Math.max(2, to - from), 5);
    }
  }

  // The event of the column under the pointer, and the block in its stack.
  at(x, y) {
    const column = this.columns[Math.floor(x - margin.left)], { view } = this;
    if (!column) {
      return null;
    }
    const event = this.eventOf(column);
    const height = this.most * (1 - (y - margin.top) / this.height);
    return { event, block: blockAtHeight(view.table, view.groupOf, view.labels.length, event, height) };
  }

  linesAt(x) {
    const column = this.columns[Math.floor(x - margin.left)];
    if (!column) {
      return null;
    }
    const { labels, high, end } = this.groups, buckets = this.view.level, i = column.bucket;
    const stack = (column.lasts && end[i]) || high[i];
    const value = this.valueAt(x);
    const when = this.view.axis === "time" ? moment(value, (this.view.to - this.view.from) / this.width)
                                           : "event " + count(value);
    const events = buckets.last_event[i] - buckets.first_event[i] + 1;
    const span = column.low < column.live ? " (at least " + bytes(column.low) + ")" : "";
    const lines = [when, "live: " + bytes(column.live) + span];
    if (this.shownReplay) {
      lines.push("reserved: " + bytes(column.reserved));
    }
    labels.forEach((label, group) => {
      if (stack[group] > 0) {
        lines.push("  " + plainName(label) + ": " + bytes(stack[group]));
      }
    });
    if (!column.lasts && events > 1) {
      lines.push("the most of " + count(events) + " events");
    } else {
      lines.push("event " + count(buckets.last_event[i]) + ": " + eventText(this.view.table, buckets.last_event[i]));
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
    const y = (event) => event.clientY - canvas.getBoundingClientRect().top;
    canvas.addEventListener("click", (event) => {
      const found = this.dragged ? null : this.at(at(event), y(event));
      if (found) {
        view.choose(found.block, found.event);
      }
    });
    canvas.addEventListener("pointerdown", (event) => {
      this.dragged = false;
      if (event.pointerType !== "touch" && event.button === 0) {
        canvas.setPointerCapture(event.pointerId);
        this.selected = [at(event), at(event)];
      }
    });
    canvas.addEventListener("pointerup", () => {
      const selected = this.selected;
      this.selected = null;
      if (selected && Math.abs(selected[1] - selected[0]) > 5) {
        this.dragged = true;
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

// `shares` are texts behind the names.
function drawLegend(parent, labels, shares) {
  const colors = colorsOf(labels);
  parent.replaceChildren();
  labels.forEach((label, group) => {
    const item = add(parent, "span", "legend");
    const swatch = add(item, "i");
    swatch.style.background = colors[group];
    const text = plainName(label) + (shares[group] || "");
    add(item, "span", "", text).title = shortened(label, 500);
  });
}

// A chart over the steps of a replay, from 0 to `right` and `top`. `paint` draws into it by the places of values, and
// `tell` gives the pointer's text for a step.
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
  const right = most("x"), shades = colorsOf(series.map((one) => one.name));
  const paint = (context, x, y, ticks) => {
    context.strokeStyle = color("grid");
    ticks.forEach((value) => context.strokeRect(margin.left, Math.round(y(value)) + 0.5, x(right) - margin.left, 0));
    series.forEach((one, i) => {
      context.strokeStyle = shades[i];
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

// The parts of reserved memory at the moments at which the plugin was asked.
function partsChart(parent, samples, height) {
  const shades = { live: "live", pending: "pending", cached: "cached", rest: "others" };
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
