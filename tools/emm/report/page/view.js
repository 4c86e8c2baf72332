// The state that the parts of the page share for one kind of memory: the axis and its visible part, the moment, the
// chosen block, the filter, and the colouring of blocks.

const mostFew = 400; // events in whose chart single blocks are seen
const finest = 1024; // parts that are computed here have at most twice as many buckets

class View {
  constructor(memory, table, figures) {
    Object.assign(this, { memory, table, figures, axis: "time", group: memory.group, filter: { ...noFilter } });
    this.event = figures.peak_event;
    this.block = -1;
    this.listeners = []; // of all changes
    this.movers = []; // of the moment, the block and the filter
    this.regroup();
    this.whole();
  }

  get overview() { return this.memory.buckets; }
  get first() { return this.level["first_" + this.axis]; }
  get last() { return this.level["last_" + this.axis]; }
  // The end of the recording, which may be a failure.
  get end() {
    const last = this.overview["last_" + this.axis];
    return this.axis === "time" ? Math.max(last[last.length - 1], page.document.figures.end_ns) : last[last.length - 1];
  }
  get begin() { return this.overview["first_" + this.axis][0]; }
  valueOf(event) {
    const known = Math.min(event, this.table.events - 1);
    return this.axis === "time" ? this.table.timeOf(known) : known;
  }

  limits() {
    const room = Math.max(this.end - this.begin, 1) * 0.01;
    return [this.begin - room, this.end + room];
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
  moved() {
    this.movers.forEach((listener) => listener());
    this.changed();
  }
  moveTo(event) {
    this.event = Math.max(0, Math.min(event, this.table.events - 1));
    this.moved();
  }
  choose(block, event) {
    this.block = block;
    this.moveTo(event);
  }
  select(filter) {
    this.filter = { ...this.filter, ...filter };
    this.regroup();
    this.moved();
  }
  colorBy(group) {
    this.group = group;
    this.regroup();
    this.changed();
  }

  // The tool has counted the whole recording; a filter, or another question, is counted here.
  regroup() {
    const { table, memory, filter } = this, counted = groupsOf(memory, this.group);
    this.mask = maskOf(table, filter);
    this.isCounted = Boolean(counted) && isOpen(filter);
    this.peak = isOpen(filter) ? { event: this.figures.peak_event, bytes: this.figures.peak_live_bytes } : peakOf(table, this.mask);
    this.labels = this.isCounted ? counted.labels
      : labelsBy(table, this.mask, questionOf(table, this.group), this.peak.event);
    this.known = {};
  }
  once(key, make) {
    if (this.known[key] === undefined) {
      this.known[key] = make();
    }
    return this.known[key];
  }
  get groupOf() {
    return this.once("groups", () => groupsBy(this.table, this.mask, questionOf(this.table, this.group, this.labels), this.labels));
  }
  // The live blocks at the moment that the filter selects.
  get live() {
    if (this.liveEvent !== this.event || this.liveMask !== this.mask) {
      [this.liveEvent, this.liveMask] = [this.event, this.mask];
      this.liveBlocks = this.table.liveAt(this.event, this.mask);
    }
    return this.liveBlocks;
  }

  // The buckets that the chart shows: the tool's while they are fine enough, else those of this part.
  get level() {
    const [begin, end] = this.limits();
    if (this.isCounted && (this.to - this.from > (end - begin) / 2 || !this.table.isComplete)) {
      return this.once("whole", () => ({ ...this.overview, stacks: groupsOf(this.memory, this.group) }));
    }
    const [from, to] = [this.from, this.to].map((value) => this.axis === "time" ? this.table.eventAt(value)
      : Math.max(0, Math.min(Math.round(value), this.table.events - 1)));
    if (this.levelKey !== from + " " + to || !this.known.level) {
      this.levelKey = from + " " + to;
      this.known.level = levelOf(this.table, this.groupOf, this.labels.length, from, to, finest);
    }
    return this.known.level;
  }
  // The blocks of a part of few events, as they are stacked: by group, and the older ones below.
  get fewBlocks() {
    const { table, level, groupOf, first, last } = this;
    const begin = level.first_event[Math.max(0, lastNotAbove(first, this.from))];
    const end = level.last_event[Math.max(0, lastNotAbove(last, this.to))];
    return end - begin > mostFew ? [] : this.once("few " + begin + " " + end, () =>
      blocksOf(table, groupOf.map((group, i) => group !== nothing && table.first[i] <= end && table.last[i] >= begin))
        .sort((one, other) => groupOf[one] - groupOf[other] || one - other));
  }
  // The reserved bytes of a replay, for each bucket of the level: as fine as the tool has them.
  reservedOf(replay) {
    const { level, overview } = this;
    if (level.first_event === overview.first_event) {
      return replay.reserved;
    }
    const place = (event) => Math.max(0, lastNotAbove(overview.first_event, event));
    return { high: level.high_event.map((event) => replay.reserved.high[place(event)]),
             end: level.last_event.map((event) => replay.reserved.end[place(event)]) };
  }

  momentText() {
    const { event, table } = this, live = this.live;
    return moment(table.timeOf(event), 1e3) + ", event " + count(event) + ", " +
      bytes(live.reduce((sum, block) => sum + table.size[block], 0)) + " live in " + count(live.length) + " blocks" +
      (isOpen(this.filter) ? "" : " that the filter has");
  }
}

// Describes an event in words.
function eventText(table, event) {
  const owner = table.owner[event], block = owner >> 1;
  if (owner < 0) {
    return "of a block that is not listed";
  }
  const by = table.hasCallers ? " by " + plainName(table.callerOf(block)) : "";
  const what = owner % 2 === 0 ? table.begin[block] < table.data.begin ? "live before" : "allocated"
    : table.isDropped(block) ? "dropped" : "freed";
  return bytes(table.size[block]) + " " + what + (what === "allocated" || by === "" ? by : ", allocated" + by);
}

// The moment: a slider over all events, and steps to it.
function momentBar(parent, view) {
  const { table } = view, row = add(parent, "div", "slider");
  const label = add(row, "label", "", "moment"), slider = add(label, "input");
  slider.type = "range";
  slider.min = 0;
  slider.max = table.events - 1;
  slider.id = "moment";
  const buttons = add(row, "div", "choices"), text = add(row, "output");
  const begin = table.timeOf(0), length = table.timeOf(table.events - 1) - begin;
  addButton(buttons, "", "to the peak", () => view.moveTo(view.peak.event));
  for (const [name, part] of [["1/4", 0.25], ["1/2", 0.5], ["3/4", 0.75], ["end", 1]]) {
    addButton(buttons, "", name, () => view.moveTo(table.eventAt(begin + length * part))).title = "of the time";
  }
  addButton(buttons, "", "event before", () => view.moveTo(view.event - 1));
  addButton(buttons, "", "next event", () => view.moveTo(view.event + 1));
  slider.addEventListener("input", () => view.moveTo(Number(slider.value)));
  view.movers.push(() => {
    slider.value = view.event;
    text.textContent = view.momentText() + ": " + eventText(table, view.event);
    text.dataset.event = view.event;
  });
}
