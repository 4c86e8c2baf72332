// Builds the page from the data that emm has put into it.

const page = { document: JSON.parse(document.getElementById("data").textContent) };

// A figure of the data, as a tile; its exact value is in data-value.
function tile(parent, id, title, text, value, more) {
  const box = add(parent, "div", "tile");
  add(box, "span", "label", title);
  const figure = add(box, "strong", "", text);
  figure.id = id;
  figure.dataset.value = value;
  if (more) {
    add(box, "span", "more", more);
  }
}

function replaysOf(number) {
  const { figures, replays } = page.document;
  return number > 0 ? [] : figures.replays.map((one, i) => ({ figures: one, drawn: replays[i] }));
}

function captionOf(replay) {
  return (replay.is_recorded ? "as recorded, on " : "replayed on ") + shortened(replay.plugin, 100);
}

// The blocks that no free ended: a reset or the end of their context dropped them.
function dropsText(figures) {
  const part = (blocks, how) => blocks > 0 ? ", " + count(blocks) + " dropped " + how : "";
  return part(figures.dropped_by_reset, "by a reset") + part(figures.dropped_with_context, "with their context");
}

function tiles(parent, figures, replays) {
  const row = add(parent, "div", "tiles");
  tile(row, "peak_live_bytes", "most live at once", bytes(figures.peak_live_bytes), figures.peak_live_bytes,
       "at " + moment(figures.peak_time_ns, 1e6) + ", in " + count(figures.peak_live_blocks) + " blocks");
  for (const { figures: replay } of replays) {
    if (!replay.error) {
      tile(row, "", "most reserved, " + shortened(replay.plugin, 40), bytes(replay.peak_reserved_bytes),
           replay.peak_reserved_bytes,
           (replay.peak_reserved_bytes / Math.max(1, figures.peak_live_bytes)).toFixed(3) + " times the most live");
    }
  }
  tile(row, "left_bytes", "live at the end", bytes(figures.left_bytes), figures.left_bytes,
       count(figures.left_blocks) + " blocks" + (page.document.figures.is_part ? "" : " never freed"));
  tile(row, "allocations", "allocations", count(figures.allocations), figures.allocations,
       count(figures.frees) + " frees" + dropsText(figures));
  const failures = page.document.figures.failures;
  if (failures > 0) {
    tile(row, "failures", "failed calls", count(failures), failures, "see below");
  }
}

function linkTo(groups, label) {
  return groups.name !== "lifetime" ? "by " : label.endsWith("of the time") ? "in blocks that lived " : "in blocks ";
}

// Lifetimes tell more about memory of a single caller, but the caller is told too.
function onlyCaller(memory) {
  const callers = groupsOf(memory, "caller");
  return memory.group === "lifetime" && callers && callers.labels.length === 1
    ? "all by " + plainName(callers.labels[0]) + "; " : "";
}

// The peak in words: the largest answers to the most telling question.
function peakSentence(memory, figures) {
  const groups = groupsOf(memory, memory.group);
  const order = groups.labels.map((_, i) => i).filter((i) => groups.bytes[i] > 0 && groups.labels[i] !== "others")
    .sort((one, other) => groups.bytes[other] - groups.bytes[one]).slice(0, 3);
  const parts = order.map((i) => percent(groups.bytes[i], figures.peak_live_bytes) + " " +
    linkTo(groups, groups.labels[i]) + plainName(groups.labels[i]));
  return "The peak, event " + count(figures.peak_event) + ": " + bytes(figures.peak_live_bytes) + " in " +
    count(figures.peak_live_blocks) + " blocks; " + onlyCaller(memory) + parts.join(", ") + ".";
}

// The lines of Python in a stack, from the innermost on: other ways to colour by caller.
function lineChoice(parent, view, choose) {
  const deepest = Math.min(12, deepestOf(view.table));
  if (deepest === 0) {
    return;
  }
  const depths = [...Array(deepest).keys()];
  const box = field(parent, "or by the line", selection("line", ["", ...depths.map((depth) => "line " + depth)],
    ["outside of wrappers", ...depths.map((depth) => depth === 0 ? "that allocates" : depth + " further out")]));
  box.addEventListener("change", () => choose(box.value || "caller"));
}

function chartSection(memory, figures, replays, view) {
  const made = section("Live and reserved memory over time",
    "Drag over a part to see it larger, down to single events; double click for all of it. A click chooses the moment and the " +
    "block. Each column shows the fullest moment in it.");
  filterBar(made, view);
  const tools = add(made, "div", "tools");
  const legend = element("div", "legends");
  choices(tools, "axis", ["time", "events"], "time", (name) => {
    view.axis = name === "time" ? "time" : "event";
    view.showAll();
  });
  const told = memory.groups.filter(({ labels }) => labels.length > 1 || labels[0] !== "unknown");
  choices(tools, "colour by", told.map((groups) => groups.name), view.group, (name) => view.colorBy(name));
  lineChoice(tools, view, (name) => view.colorBy(name));
  let drawn = null;
  view.listeners.push(() => {
    if (drawn !== view.labels) {
      drawn = view.labels;
      const counted = view.isCounted ? groupsOf(memory, view.group).bytes : [];
      drawLegend(legend, view.labels, counted.map((part) => part > 0 ? "  " + percent(part, figures.peak_live_bytes) : ""));
    }
  });
  const zoom = add(tools, "div", "choices");
  for (const [text, name, action] of [
    ["+", "zoom in", () => view.zoom(0.5)], ["-", "zoom out", () => view.zoom(2)],
    ["<", "move left", () => view.move(-0.25)], [">", "move right", () => view.move(0.25)],
    ["all", "show all", () => view.showAll()]]) {
    const button = addButton(zoom, "", text, action);
    button.title = name;
    button.setAttribute("aria-label", name);
  }
  const replayed = replays.filter((one) => one.drawn);
  const grid = add(made, "div", replayed.length > 1 ? "grid" : "");
  const shared = replayed.length < 2 ? null : (shown) => Math.max(...replayed.map((one) =>
    shown.reservedOf(one.drawn).high.reduce((most, value, i) =>
      shown.last[i] >= shown.from && shown.first[i] <= shown.to ? Math.max(most, value) : most, 0)));
  for (const replay of replayed.length > 0 ? replayed : [null]) {
    const box = add(grid, "figure");
    if (replay) {
      add(box, "figcaption", "", captionOf(replay.figures));
    }
    new MemoryChart(box, view, memory, figures, replay && replay.drawn, shared);
  }
  made.append(legend);
  momentBar(made, view);
  if (replayed.length > 0) {
    const item = add(legend.parentElement, "p", "about");
    add(item, "i", "hatched");
    add(item, "span", "", "hatched: reserved from the driver, and not live. Why, is told below.");
  } else {
    add(made, "p", "about", unknownReserved());
  }
  blockBox(made, view);
  return made;
}

function unknownReserved() {
  return "Not known: what was reserved, and the calls to the driver. " +
    "The " + page.document.figures.kind + " does not tell, " +
    "but a replay of its device memory does: emm report FILE --plugin SPEC, or --compare SPEC SPEC.";
}

function unknownCallers(view) {
  const record = "emm run --track stack --record log.csv -- PROGRAM";
  switch (flameLevels(view)[0][0]) {
  case "calls":
    return "";
  case "library":
  case "caller":
    return " Of a Python program, a log that is recorded with its stacks has the lines: " + record;
  default:
    return " The " + page.document.figures.kind + " does not tell who asked. A recording by emm does: " + record;
  }
}

function flameSection(memory, figures, view) {
  const made = section("What was live", peakSentence(memory, figures)), said = add(made, "p", "now");
  view.movers.push(() => {
    said.textContent = (view.event === view.peak.event ? "At the peak, " : "At ") + view.momentText() + ":";
  });
  new Flame(made, view);
  add(made, "p", "about", "It follows the moment above. Click a block to see what it is made of." + unknownCallers(view));
  new BlockList(made, view);
  const more = add(made, "details");
  add(more, "summary", "", "The sizes with the most bytes at the peak");
  const leading = sizeTexts(memory.leading_sizes.map((bar) => bar[0]));
  tableOf(more, ["size", "bytes at the peak", "blocks at the peak", "blocks allocated in all"],
        memory.leading_sizes.map((bar, i) => [[leading[i], bar[0]], [bytes(bar[3]), bar[3]],
          count(bar[3] / Math.max(1, bar[0])), count(bar[1])]));
  return made;
}

// The parts of the reserved memory at its peak.
function reservedParts(most) {
  return most ? [["live", most.live, "what the program had", "live"],
    ["pending", most.pending, "freed, and waiting for the device's work or a deferred clean-up", "pending"],
    ["cached", most.cached, "free, and kept for later requests", "cached"],
    ["rest", most.rest, "rounding of sizes, and what the plugin does not account for", "others"]] : [];
}

function reservedSection(replays, frees) {
  const made = section("Why more is reserved than live");
  if (replays.length === 0) {
    add(made, "p", "about", unknownReserved());
    return made;
  }
  const grid = add(made, "div", replays.length > 1 ? "grid" : "");
  replays.forEach(({ figures: replay, drawn }) => {
    const box = add(grid, "figure");
    add(box, "figcaption", "", captionOf(replay));
    if (replay.error) {
      add(box, "p", "failure", shortened(replay.error.message, 500));
      return;
    }
    reservedBox(box, replay, drawn.samples, frees);
  });
  return made;
}

// The memory that was not live, by the stream of its last free.
function freeSentence(growth) {
  const free = growth.free_before, asked = growth.asked;
  if (free.given_back > 0) {
    return " Of the memory that had been freed at least " + bytes(free.given_back) + " had gone back to the driver, so it is not " +
      "known which streams had freed the rest.";
  }
  const part = (one, whose) => one.bytes > 0 ? [bytes(one.bytes) + " " + whose + " (the largest piece " + bytes(one.largest) + ")"] : [];
  const parts = [...part(free.own_stream, "had been freed last on the request's own stream"),
    ...part(free.other_streams, "on other streams, whose work it would have to wait for"),
    ...part(free.no_stream, "with no stream, after all work of the device")];
  const large = [["own_stream", "on its own stream"], ["other_streams", "on other streams"], ["no_stream", "with no stream"]]
    .filter(([key]) => free[key].largest >= asked).map(([, text]) => text);
  return " By the stream that freed it last: " + (parts.length > 0 ? parts.join("; ") + "; " : "") +
    bytes(free.never_used) + " had never been part of a block." +
    (large.length > 0 ? " Large enough was what had been freed " + large.join(", and ") + "."
      : " No piece of one of them was large enough.");
}

// Why the plugin took more from the driver when its memory reached the peak.
function growthSentence(replay) {
  const growth = replay.growth, at = "At event " + count(replay.peak_reserved_event);
  if (!growth) {
    return "";
  }
  const { asked, idle_before: idle, gaps_before: gaps } = growth;
  const grown = replay.peak_reserved_bytes - growth.reserved_before;
  const begin = at + " the program asked for " + bytes(asked) + ", and the plugin took " + bytes(grown) + " from the driver: of the " +
    bytes(growth.reserved_before) + " that it had, ";
  if (idle < asked) {
    return begin + bytes(idle) + " were not live, which is less than that.";
  }
  if (grown < asked) {
    return begin + bytes(idle) + " were not live, but nowhere enough in one piece; the plugin added to a piece that was too small." + freeSentence(growth);
  }
  return begin + bytes(idle) + " were not live, but " + (gaps.largest < asked
    ? "no gap between the live blocks was larger than " + bytes(gaps.largest) + ": the free memory was in pieces that are too small."
    : "it could not serve this request.") + freeSentence(growth);
}

function partsOf(box, most) {
  const bar = add(box, "div", "parts");
  const list = add(box, "ul");
  for (const [name, part, meaning, shade] of reservedParts(most).filter(([, part]) => part > 0)) {
    const piece = add(bar, "i");
    piece.style.width = 100 * part / Math.max(1, most.reserved) + "%";
    piece.style.background = color(shade);
    piece.title = name + ": " + bytes(part);
    const item = add(list, "li");
    const swatch = add(item, "i", "swatch");
    swatch.style.background = color(shade);
    add(item, "b", "", name + " " + bytes(part)).dataset.value = part;
    add(item, "span", "", " (" + percent(part, most.reserved) + "): " + meaning);
  }
}

function reservedBox(box, replay, samples, frees) {
  const keeps = frees === 0 || samples.cached.some((value) => value > 0);
  add(box, "p", "", "The most was reserved at event " + count(replay.peak_reserved_event) + ", " +
      moment(replay.peak_reserved_time_ns, 1e6) + ": " + bytes(replay.peak_reserved_bytes) + ", when " +
      bytes(replay.live_then_bytes) + " were live. At the peak of live memory " +
      bytes(replay.reserved_at_peak_live) + " were reserved.");
  add(box, "p", "growth", keeps ? growthSentence(replay) : "The plugin keeps nothing for later requests: what is reserved " +
      "and not live waits until it can be freed, or is the rounding of sizes.");
  partsOf(box, replay.when_most_reserved);
  partsChart(box, samples, 170);
  const most = replay.when_most_idle;
  if (most) {
    const parts = ["live", "cached", "pending"].filter((name) => most[name] > 0).map((name, i) =>
      bytes(most[name]) + " (" + percent(most[name], most.reserved) + ")" + (i === 0 ? " were " : " ") + name);
    add(box, "p", "", "The difference was largest at event " + count(most.event) + ": of " + bytes(most.reserved) + " reserved " +
        parts.join(", ") + "." +
        (most.cached * 2 > most.reserved - most.live ? " The plugin keeps what the program needed before, so that it need " +
         "not ask the driver again." : ""));
  }
  const gaps = replay.gaps_then;
  if (keeps) {
    add(box, "p", "about", gaps.count === 0 ? "When the most was reserved, the live blocks lay side by side, without a gap." :
        "When the most was reserved, there were between the live blocks " + count(gaps.count) + (gaps.count > 1 ? " gaps" : " gap") +
        " of addresses, the largest " + bytes(gaps.largest) + ".");
  }
  if (replay.failed > 0) {
    add(box, "p", "failure", count(replay.failed) + " calls failed in this replay. " +
        shortened((replay.notes || []).join(" "), 500));
  }
}

function mapSection(memory, replays, view) {
  const drawn = replays.filter((one) => one.drawn && one.drawn.map).map((one) =>
    [captionOf(one.figures), one.drawn.map]);
  const maps = (memory.map ? [["as recorded", { ...memory.map, isRecorded: true }]] : []).concat(drawn).filter(([, map]) => map.starts.length > 0);
  const made = section("Where the blocks lay",
    maps.length > 0 ? "Colours by " + maps[0][1].by + ". The dashed line in the chart above is the moment." +
      (memory.map ? " A click on a cell of the recording finds the blocks at its address." : "") :
      "Not known: a trace has no addresses. A replay has: emm report FILE --plugin SPEC.");
  if (maps.length > 0) {
    mapsIn(made, view, maps);
  }
  return made;
}

function barsSection(title, about, rows, id) {
  const made = section(title, about);
  new Bars(made, rows, id);
  return made;
}

function callsSection(replays) {
  const good = replays.filter((one) => one.drawn);
  const made = section("Calls to the driver");
  if (good.length === 0) {
    add(made, "p", "about", unknownReserved());
    return made;
  }
  add(made, "p", "about", good[0].figures.is_recorded ? "The segments that PyTorch took from the driver." :
      "By emm and the plugin in the replay, over its events. " + (good.length > 1 ? "All functions together." : ""));
  const names = [...new Set(good.flatMap((one) => Object.keys(one.figures.driver_calls)))];
  const total = (name) => good.reduce((sum, one) => sum + (one.figures.driver_calls[name] || 0), 0);
  names.sort((one, other) => total(other) - total(one));
  const seriesOf = (one, name) => ({ x: one.drawn.samples.step, y: one.drawn.samples.calls[name] });
  const sum = (one) => one.drawn.samples.step.map((_, i) =>
    Object.values(one.drawn.samples.calls).reduce((all, counts) => all + counts[i], 0));
  const series = good.length > 1
    ? good.map((one) => ({ name: one.figures.plugin, x: one.drawn.samples.step, y: sum(one) }))
    : names.filter((name) => good[0].drawn.samples.calls[name]).slice(0, 6)
      .map((name) => ({ name, ...seriesOf(good[0], name) }));
  if (series.length > 0) {
    lineChart(made, series, 190);
    const legend = add(made, "div", "legends"), shades = colorsOf(series.map((one) => one.name));
    series.forEach((one, i) => {
      const item = add(legend, "span", "legend");
      add(item, "i").style.background = shades[i];
      add(item, "span", "", shortened(one.name, 60));
    });
  }
  tableOf(made, ["function", ...good.map((one) => shortened(one.figures.plugin, 60))],
        names.slice(0, 40).map((name) => [name, ...good.map((one) => {
          const calls = one.figures.driver_calls[name] || 0;
          return [count(calls), calls];
        })])).id = "driver_calls";
  return made;
}

function comparison(figures, replays) {
  const good = replays.filter((one) => !one.figures.error).map((one) => one.figures);
  const made = section("Side by side");
  const row = (title, text, value) => [title, ...good.map((one) => [text(one), value(one)])];
  tableOf(made, ["", ...good.map((one) => shortened(one.plugin, 60))], [
    row("most reserved after a call", (one) => bytes(one.peak_reserved_bytes), (one) => one.peak_reserved_bytes),
    row("most reserved, also during a call", (one) => bytes(one.peak_within_calls_bytes), (one) => one.peak_within_calls_bytes),
    row("most reserved after a call, divided by the most live", (one) => (one.peak_reserved_bytes / Math.max(1, figures.peak_live_bytes)).toFixed(3), () => ""),
    row("reserved when the most was live", (one) => bytes(one.reserved_at_peak_live), (one) => one.reserved_at_peak_live),
    row("driver calls", (one) => count(one.driver_calls_total), (one) => one.driver_calls_total),
    row("failed calls", (one) => count(one.failed), (one) => one.failed),
    row("leaked", (one) => bytes(one.leaked), (one) => one.leaked),
  ]).id = "comparison";
  for (const one of replays.filter((one) => one.figures.error)) {
    add(made, "p", "failure", shortened(one.figures.plugin, 100) + ": " + shortened(one.figures.error.message, 500));
  }
  return made;
}

// Two recordings of a program: the parts that have grown or shrunk.
function changesSection(changes, view) {
  const signed = ([was, is]) => was === is ? "same" : (is > was ? "+" : "-") + bytes(Math.abs(is - was));
  const pair = ([was, is]) => bytes(is) + ", was " + bytes(was);
  const made = section("What changed", "Against " + plainName(changes.before) + ": at most " + pair(changes.peak_live_bytes) +
    " live; at the end " + pair(changes.left_bytes) + "." + (changes.by === "caller" ? " A click shows the blocks." : ""));
  const rows = changes.rows.filter((row) => ["peak_bytes", "left_bytes", "allocations"].some((key) => row[key][0] !== row[key][1]));
  const filled = tableOf(made, [changes.by, "at the peak", "was", "change", "live at the end", "was", "change", "allocations", "was"],
    rows.map((row) => [row.name, ...[row.peak_bytes, row.left_bytes].flatMap((one) =>
      [[bytes(one[1]), one[1]], bytes(one[0]), [signed(one), one[1] - one[0]]]), count(row.allocations[1]), count(row.allocations[0])]));
  filled.id = "changes";
  if (changes.by === "caller") {
    [...filled.tBodies[0].rows].forEach((line, i) => rowButton(line, () => view.select({ ...noFilter, text: rows[i].name })));
  }
  return made;
}

function failureSection(view) {
  const { failures, figures } = page.document, { table } = view;
  const made = section("Calls that failed", count(figures.failures) + " in all" +
    (failures.length < figures.failures ? ", of which these are the first." : ".") + " A click shows the moment.");
  const filled = tableOf(made, ["what", "asked for", "free on the device", "live here", "at", "by"], failures.map((one) =>
    [one.what, [bytes(one.size), one.size], one.free === null ? "unknown" : bytes(one.free),
     bytes(table.liveAt(table.eventAt(one.time), view.mask).reduce((sum, block) => sum + table.size[block], 0)),
     moment(one.time, 1e3), one.caller]));
  filled.id = "failed";
  [...filled.tBodies[0].rows].forEach((line, i) => rowButton(line, () => view.moveTo(table.eventAt(failures[i].time))));
  return made;
}

function show(number) {
  const { figures: all, memory: drawn, calls } = page.document;
  const memory = drawn[number], figures = all.memory[number], replays = replaysOf(number);
  const main = document.getElementById("main");
  canvases.length = 0;
  const table = new Table(memory.table, calls), view = new View(memory, table, figures);
  page.view = view;
  main.replaceChildren();
  tiles(main, figures, replays);
  if (replays.length > 1) {
    main.append(comparison(figures, replays));
  }
  if (number === 0 && all.changes) {
    main.append(changesSection(all.changes, view));
  }
  main.append(chartSection(memory, figures, replays, view), flameSection(memory, figures, view), unfreedSection(view));
  if (figures.memory === "device memory") {
    main.append(reservedSection(replays, figures.frees));
  }
  if (streamNames(table).length > 1) {
    main.append(streamSection(view));
  }
  main.append(mapSection(memory, replays, view));
  const pair = add(main, "div", "pair");
  pair.append(
    barsSection("How long blocks lived", "From the allocation to the free.", lifetimeRows(memory), "lifetimes"),
    barsSection("How large blocks were", "By powers of two.", sizeRows(memory), "sizes"));
  if (figures.memory === "device memory") {
    main.append(callsSection(replays));
  }
  if (all.failures > 0) {
    main.append(failureSection(view));
  }
  canvases.forEach((redraw) => redraw());
  view.moved();
}

function start() {
  const { figures } = page.document;
  const name = plainName(figures.input);
  document.title = name + " - emm report";
  document.getElementById("title").textContent = name;
  document.getElementById("source").textContent =
    (figures.kind === "event log" ? "An " : "A ") + figures.kind + " of " + count(figures.events) + " events in " +
    duration(figures.end_ns - figures.begin_ns) + "." +
    (figures.is_part ? " This is a part of it, from " + moment(figures.begin_ns, 1e6) + " to " + moment(figures.end_ns, 1e6) +
      ", which begins with the blocks that were live then." : "") +
    (figures.left_off > 0 ? " " + count(figures.left_off) + " events of further devices are left out." : "");
  const names = figures.memory.map((one) => "device " + one.device + ": " + one.memory);
  if (names.length > 1) {
    choices(document.getElementById("subjects"), "memory", names, names[0], (chosen) => show(names.indexOf(chosen)));
  }
  show(0);
  window.addEventListener("resize", () => canvases.forEach((redraw) => redraw()));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(0));
}

start();
