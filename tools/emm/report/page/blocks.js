// Blocks one by one: the filter, the list, the details of one, and the blocks that were never freed.

function field(parent, label, made) {
  const box = add(parent, "label", "field");
  add(box, "span", "label", label);
  box.append(made);
  return made;
}

function input(id, hint) {
  const made = element("input");
  made.id = id;
  made.placeholder = hint;
  made.size = hint.length;
  return made;
}

function selection(id, names, texts) {
  const made = element("select");
  made.id = id;
  names.forEach((name, i) => { add(made, "option", "", texts[i]).value = name; });
  return made;
}

function filterBar(parent, view) {
  const { table } = view, row = add(parent, "div", "fields");
  const text = field(row, "find", input("find", "caller, file or 0xaddress"));
  text.parentElement.hidden = !table.hasCallers && !table.hasAddresses;
  const streams = streamNames(table);
  const stream = field(row, "stream", selection("stream", ["", ...streams], ["all", ...streams]));
  const least = field(row, "at least", input("least", "1 MiB")), most = field(row, "at most", input("most", "4 GiB"));
  const whiches = ["all", "never freed", "freed on another stream"];
  const which = field(row, "blocks", selection("which", whiches, whiches));
  const clear = addButton(row, "", "clear", () => view.select({ ...noFilter }));
  clear.id = "clear";
  const said = add(parent, "p", "about");
  said.id = "found";
  const sizeOr = (box, other) => {
    const size = sizeIn(box.value);
    box.setAttribute("aria-invalid", String(box.value !== "" && Number.isNaN(size)));
    return Number.isNaN(size) ? other : size;
  };
  const apply = () => view.select({ text: text.value, stream: stream.value, least: sizeOr(least, noFilter.least),
                                    most: sizeOr(most, noFilter.most), which: which.value });
  [text, stream, least, most, which].forEach((one) => one.addEventListener("change", apply));
  view.movers.push(() => {
    const { filter } = view;
    text.value = filter.text;
    stream.value = filter.stream;
    which.value = filter.which;
    least.value = filter.least === noFilter.least ? "" : least.value || bytes(filter.least);
    most.value = filter.most === noFilter.most ? "" : most.value || bytes(filter.most);
    clear.disabled = isOpen(filter);
    said.textContent = foundText(view);
  });
}

function streamNames(table) {
  const used = new Set();
  for (let i = 0; i < table.count; i++) {
    used.add(table.stream[i]);
  }
  return [...used].map((stream) => table.data.streams[Math.min(stream, table.data.streams.length - 1)]);
}

function foundText(view) {
  const { table } = view, left = table.data.left_off;
  const found = isOpen(view.filter) ? "" : "The filter has " + count(view.mask.reduce((sum, one) => sum + one, 0)) + " of " +
    count(table.count) + " blocks; at most " + bytes(view.peak.bytes) + " of them were live, after event " +
    count(view.peak.event) + ". ";
  return found + (left > 0 ? count(left) + " blocks of less than " + bytes(table.data.least_size) + " are not listed, and only " +
    "counted: emm report --from, --to and --step have all blocks of a part." : "");
}

// A row of a table that is also a button.
function rowButton(line, action) {
  line.className = "acts";
  line.tabIndex = 0;
  line.addEventListener("click", action);
  line.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      action();
    }
  });
}

const whichBlocks = ["live at the moment", "of all the time"];

class BlockList {
  constructor(parent, view) {
    Object.assign(this, { view, which: whichBlocks[0], most: 15 });
    choices(parent, "show", whichBlocks, this.which, (name) => {
      this.which = name;
      this.draw();
    });
    this.box = add(parent, "div");
    this.box.id = "blocks";
    this.more = addButton(parent, "", "more", () => {
      this.most *= 4;
      this.draw();
    });
    view.movers.push(() => this.draw());
  }

  draw() {
    const { view } = this, { table } = view;
    const blocks = this.which === whichBlocks[0] ? view.live : blocksOf(table, view.mask);
    const shown = largestOf(table, blocks, this.most), sizes = sizeTexts(shown.map((block) => table.size[block]));
    this.box.replaceChildren();
    this.more.hidden = blocks.length <= this.most;
    const known = (is, cell) => is ? [cell] : [];
    const made = tableOf(this.box,
      ["size", ...known(table.hasCallers, "caller"), ...known(table.hasAddresses, "address"), "stream", "allocated at", "lived"],
      shown.map((block, i) => [[sizes[i], table.size[block]], ...known(table.hasCallers, table.callerOf(block)),
        ...known(table.hasAddresses, table.addressText(block)), table.nameOf("stream", block),
        moment(table.begin[block], 1e3), livedText(table, block)]));
    [...made.tBodies[0].rows].forEach((line, i) => {
      line.setAttribute("aria-selected", String(shown[i] === view.block));
      rowButton(line, () => {
        view.choose(shown[i], table.isLive(shown[i], view.event) ? view.event : table.first[shown[i]]);
        document.getElementById("block").scrollIntoView({ block: "nearest" });
      });
    });
    add(this.box, "p", "about", blocks.length === 0 ? "No block." : count(blocks.length) + " blocks; the largest " +
      count(shown.length) + " are listed. A click tells all of one.");
  }
}

function livedText(table, block) {
  return table.isUnfreed(block) ? "never freed"
    : duration(table.end[block] - table.begin[block]) + (table.isDropped(block) ? ", dropped" : "");
}

// All details of the chosen block.
function blockBox(parent, view) {
  const box = add(parent, "div", "block");
  box.id = "block";
  view.movers.push(() => {
    const { table, block } = view;
    box.replaceChildren();
    if (block < 0) {
      add(box, "p", "about", "Click the chart, or a row below: here is then the block, with its stack.");
      return;
    }
    add(box, "h3", "", bytes(table.size[block]) + (table.hasCallers ? " by " + plainName(table.callerOf(block)) : ""));
    const rows = blockFacts(table, block), facts = add(box, "dl");
    rows.forEach(([name, text]) => {
      add(facts, "dt", "", name);
      add(facts, "dd", "", text);
    });
    const buttons = add(box, "div", "choices");
    addButton(buttons, "", "to its allocation", () => view.moveTo(table.first[block]));
    if (table.last[block] < table.events) {
      addButton(buttons, "", "to its end", () => view.moveTo(table.last[block]));
    }
    if (table.hasCallers) {
      addButton(buttons, "", "all of its caller", () => view.select({ ...noFilter, text: table.callerOf(block) }));
    }
    if (table.hasAddresses) {
      addButton(buttons, "", "all at its address", () => view.select({ ...noFilter, text: table.addressText(block) }));
    }
    const stack = table.stackOf(table.site[block]);
    add(box, "p", "about", stack.length === 0 ? "The recording does not tell who asked." :
      "Its stack, the innermost call first. A click finds all blocks with that line.");
    const list = add(box, "ol", "stack");
    for (const frame of stack) {
      const item = add(list, "li", frame.text === table.callerOf(block) ? "caller" : "");
      addButton(item, "", shortened(frame.full, 300), () => view.select({ ...noFilter, text: frame.full }));
    }
  });
}

function blockFacts(table, block) {
  const { data } = table, isFreed = !table.isUnfreed(block), isDropped = table.isDropped(block);
  const at = (time, event) => moment(time, 1e3) + ", event " + count(event);
  return [
    ["size", bytes(table.size[block]) + " (" + count(table.size[block]) + " bytes)"],
    ["address", table.addressText(block)],
    ["stream", table.nameOf("stream", block) +
      (isFreed && !isDropped ? ", freed on " + table.nameOf("freed_on", block) : "")],
    ...(data.threads.length > 2 ? [["thread", table.nameOf("thread", block)]] : []),
    ...(data.pools.length > 2 ? [["pool", table.nameOf("pool", block)]] : []),
    ...(new Set(table.calls.tag).size > 1 ? [["tag", table.tagOf(block)]] : []),
    ["allocated", at(table.begin[block], table.first[block])],
    [isDropped ? "dropped" : "freed", !isFreed ? "never" : table.last[block] < table.events ? at(table.end[block], table.last[block])
      : moment(table.end[block], 1e3) + ", behind this part"],
    ["lived", isFreed ? duration(table.end[block] - table.begin[block]) : "to the end of the recording"],
  ];
}

// Unfreed memory by caller, with its times: memory that is never freed and comes all the time is a leak.
function unfreedSection(view) {
  const orders = { "bytes": "bytes", "bytes and how long they are held": "held" };
  let order = "bytes";
  const made = section("What was never freed");
  choices(made, "most", Object.keys(orders), "bytes", (name) => {
    order = orders[name];
    draw();
  });
  const box = add(made, "div");
  box.id = "unfreed";
  const draw = () => {
    const { table } = view, rows = unfreedBy(table, view.mask, 24).sort((one, other) => other[order] - one[order]);
    box.replaceChildren();
    if (rows.length === 0) {
      add(box, "p", "about", "Nothing: each block was freed, or dropped by a reset or with its context.");
      return;
    }
    add(box, "p", "about", "Still live at the end. Bars: when it was allocated, from the first event to the last. Memory " +
        "that a program keeps comes once; a leak comes again and again. A click shows the blocks.");
    const lines = rows.slice(0, 30);
    const filled = tableOf(box, [table.hasCallers ? "caller" : "size", "bytes", "when", "blocks", "first", "last"], lines.map((row) =>
      [row.name, [bytes(row.bytes), row.bytes], "", count(row.blocks), moment(row.from, 1e6), moment(row.to, 1e6)]));
    [...filled.tBodies[0].rows].forEach((line, i) => {
      spark(line.children[2], lines[i].times);
      rowButton(line, () => view.select({ ...noFilter, text: table.hasCallers ? lines[i].name : "", which: "never freed" }));
    });
    if (rows.length > lines.length) {
      add(box, "p", "about", count(rows.length - lines.length) + " more rows have " +
          bytes(rows.slice(lines.length).reduce((sum, row) => sum + row.bytes, 0)) + ".");
    }
  };
  let drawn = null;
  view.movers.push(() => {
    if (drawn !== view.mask) {
      drawn = view.mask;
      draw();
    }
  });
  return made;
}

function spark(parent, values) {
  const box = add(parent, "span", "spark"), most = Math.max(...values);
  values.forEach((value) => { add(box, "i").style.height = value > 0 ? 10 + 90 * value / most + "%" : "1px"; });
}

function streamSection(view) {
  const made = section("Streams", "Memory belongs to the stream that asked for it. A click shows its blocks.");
  const box = add(made, "div");
  box.id = "streams";
  view.movers.push(() => {
    const { table } = view, rows = streamsAt(table, view.mask, view.event).slice(0, 40);
    box.replaceChildren();
    const filled = tableOf(box, ["stream", "at the moment", "the most ever", "at", "blocks", "allocated in all", "freed on another stream"],
      rows.map((row) => [row.name, [bytes(row.now), row.now], [bytes(row.most), row.most], moment(table.timeOf(row.at), 1e6),
                         count(row.blocks), bytes(row.bytes), count(row.elsewhere)]));
    [...filled.tBodies[0].rows].forEach((line, i) => rowButton(line, () => view.select({ ...noFilter, stream: rows[i].name })));
  });
  return made;
}
