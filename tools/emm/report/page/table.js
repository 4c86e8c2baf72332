// The blocks of one kind of memory, a column for each property. This file does not draw: it computes the page's answers
// from these columns.

function bytesIn(text) {
  if (Uint8Array.fromBase64) {
    return Uint8Array.fromBase64(text);
  }
  const letters = atob(text), all = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) {
    all[i] = letters.charCodeAt(i);
  }
  return all;
}

// Seven bits a byte, the lowest first. One number stands for a column of equal numbers.
function numbersIn(text, count, Kind) {
  const from = bytesIn(text), numbers = new Kind(count);
  for (let i = 0, at = 0; i < count; i++) {
    let value = from[at] & 127;
    for (let scale = 128; from[at++] > 127; scale *= 128) {
      value += (from[at] & 127) * scale;
    }
    numbers[i] = value;
    if (i === 0 && at === from.length) {
      return numbers.fill(value);
    }
  }
  return numbers;
}

const nothing = 255; // the group of a block that the filter leaves out
const compiled = 0, own = 2; // kinds of frames; 1 is installed Python

class Table {
  // `calls` has the frames of each call site.
  constructor(data, calls) {
    const column = (name, Kind) => numbersIn(data.columns[name], data.count, Kind);
    Object.assign(this, { data, calls, count: data.count, events: data.events, isComplete: data.left_off === 0 });
    this.first = column("event", Uint32Array);
    this.last = column("events", Uint32Array); // `events` of a block that was never freed
    this.begin = column("begin", Float64Array);
    this.end = column("lived", Float64Array);
    this.size = column("size", Float64Array);
    this.address = column("address", Float64Array); // from the lowest one on
    this.site = column("site", Uint32Array);
    for (const name of ["stream", "thread", "freed_on", "pool"]) {
      this[name] = column(name, Uint16Array);
    }
    this.dropped = column("dropped", Uint8Array);
    this.order();
  }

  // Turns differences into moments. `owner` has for each event its block, times two, plus one for its end.
  order() {
    this.owner = new Int32Array(this.events).fill(-1);
    let event = 0, time = 0;
    for (let i = 0; i < this.count; i++) {
      const lives = this.last[i] === 0;
      this.first[i] = event += this.first[i];
      this.begin[i] = time += this.begin[i];
      this.last[i] = lives ? this.events : event + this.last[i];
      this.end[i] = lives && this.end[i] === 0 ? Infinity : time + this.end[i];
      this.owner[event] = 2 * i;
      if (!lives) {
        this.owner[this.last[i]] = 2 * i + 1;
      }
    }
  }

  // An event of a block that is not listed has the time of the event before. A part of a recording begins with the
  // blocks that are live then.
  timeOf(event) {
    while (event > 0 && this.owner[event] < 0) {
      event--;
    }
    const owner = this.owner[event], block = owner >> 1;
    return owner < 0 ? this.data.begin : owner % 2 ? this.end[block] : Math.max(this.begin[block], this.data.begin);
  }

  // The last event at or before a time; at the earliest the first event.
  eventAt(time) {
    let low = 0, high = this.events;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.timeOf(middle) <= time) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return Math.max(0, low - 1);
  }

  isLive(block, event) {
    return this.first[block] <= event && this.last[block] > event;
  }
  isUnfreed(block) {
    return this.end[block] === Infinity;
  }
  isDropped(block) {
    return this.dropped[block] > 0;
  }

  // The live blocks after the event that the mask selects, in the order of their allocations.
  liveAt(event, mask) {
    const blocks = [];
    for (let i = 0; i < this.count && this.first[i] <= event; i++) {
      if (this.last[i] > event && mask[i]) {
        blocks.push(i);
      }
    }
    return blocks;
  }

  addressText(block) {
    return !this.hasAddresses ? "unknown" : "0x" + (BigInt(this.data.first_address) + BigInt(this.address[block])).toString(16);
  }
  // The distance of an address from the lowest one; NaN: not an address.
  offsetOf(text) {
    return this.hasAddresses && /^0x[0-9a-f]{1,16}$/i.test(text)
      ? Number(BigInt(text) - BigInt(this.data.first_address)) : NaN;
  }

  // The frames of a call site, the innermost first: text, full text, kind.
  stackOf(site) {
    const { frames, texts } = this.calls;
    return frames[site].map(([text, full, kind]) => ({ text: texts[text], full: texts[full], kind }));
  }
  callerOf(block) {
    return this.calls.texts[this.calls.caller[this.site[block]]];
  }

  // "no tag" if the thread was inside of no tag.
  tagOf(block) {
    return this.calls.texts[this.calls.tag[this.site[block]]];
  }
  get hasCallers() {
    return this.calls.frames.some((frames) => frames.length > 0);
  }
  get hasAddresses() {
    return this.data.first_address !== null;
  }
  nameOf(kind, block) {
    const names = this.data[kind === "freed_on" ? "streams" : kind + "s"];
    return names[Math.min(this[kind][block], names.length - 1)];
  }
}

// The reader's filter; each part may be left open.
const noFilter = { text: "", stream: "", least: 0, most: Infinity, which: "all" };

function isOpen(filter) {
  return Object.keys(noFilter).every((key) => filter[key] === noFilter[key]);
}

// 1 for each block that fits the filter. An address fits the blocks around it, any other text the stacks that contain
// it.
function maskOf(table, filter) {
  const mask = new Uint8Array(table.count), text = filter.text.trim().toLowerCase();
  const offset = table.offsetOf(text), isAddress = !Number.isNaN(offset);
  const sites = isAddress || text === "" ? null : table.calls.frames.map((frames, site) =>
    frames.some(([label, full]) => [label, full].some((one) => table.calls.texts[one].toLowerCase().includes(text))) ||
    [table.calls.caller[site], table.calls.tag[site]].some((one) => table.calls.texts[one].toLowerCase().includes(text)));
  for (let i = 0; i < table.count; i++) {
    const size = table.size[i];
    mask[i] = size >= filter.least && size <= filter.most &&
      (!isAddress || (table.address[i] <= offset && offset < table.address[i] + size)) &&
      (sites === null || sites[table.site[i]]) &&
      (filter.stream === "" || table.nameOf("stream", i) === filter.stream) &&
      (filter.which === "all" || (filter.which === "never freed" ? table.isUnfreed(i) :
        !table.isUnfreed(i) && !table.isDropped(i) && table.freed_on[i] !== table.stream[i]));
  }
  return mask;
}

// "4 MiB", "1.5g", "100": bytes; NaN: not a size.
function sizeIn(text) {
  const found = /^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)i?b?\s*$/i.exec(text);
  return found ? Math.round(Number(found[1]) * 1024 ** " kmgt".indexOf(found[2].toLowerCase() || " ")) : NaN;
}

// The line of the program's own Python at that distance from the innermost one, or the last line.
function lineOf(table, site, depth) {
  const lines = table.calls.frames[site].filter(([, , kind]) => kind === own);
  const frames = lines.length > 0 ? lines : table.calls.frames[site];
  return frames.length > 0 ? table.calls.texts[frames[Math.min(depth, frames.length - 1)][0]] : "unknown";
}

// How many lines of the program's own the deepest stack has.
function deepestOf(table) {
  return Math.max(0, ...table.calls.frames.map((frames) => frames.filter(([, , kind]) => kind === own).length));
}

const lifetimeTexts = ["never freed", "dropped, not freed", "over 50 % of the time", "10 to 50 % of the time",
                       "1 to 10 % of the time", "under 1 % of the time"];

function lifetimeOf(table, block) {
  const part = (table.end[block] - table.begin[block]) / (table.timeOf(table.events - 1) - table.timeOf(0));
  return lifetimeTexts[table.isUnfreed(block) ? 0 : table.isDropped(block) ? 1
    : part >= 0.5 ? 2 : part >= 0.1 ? 3 : part >= 0.01 ? 4 : 5];
}

// A question about a block: the function that answers it with a text. Sizes are exact, or of a class that `labels` has
// for them.
function questionOf(table, name, labels = []) {
  const { texts, library, tag } = table.calls, line = /^line ([0-9]+)$/.exec(name);
  if (line) {
    const lines = table.calls.frames.map((_, site) => lineOf(table, site, Number(line[1])));
    return (block) => lines[table.site[block]];
  }
  return {
    library: (block) => texts[library[table.site[block]]],
    caller: (block) => table.callerOf(block),
    lifetime: (block) => lifetimeOf(table, block),
    size: (block) => sizeClass(table.size[block], labels),
    stream: (block) => "stream " + table.nameOf("stream", block),
    thread: (block) => "thread " + table.nameOf("thread", block),
    pool: (block) => table.nameOf("pool", block),
    tag: (block) => texts[tag[table.site[block]]],
  }[name];
}

function sizeClass(size, labels) {
  const classes = [bytes(size), size + " B", "from " + bytes(2 ** Math.floor(Math.log2(size || 1)))];
  return classes.find((name) => labels.includes(name)) || classes[0];
}

// The answers of the blocks, largest first: [{ name, bytes, blocks }].
function sumsBy(table, blocks, question) {
  const sums = new Map();
  for (const block of blocks) {
    const name = question(block), sum = sums.get(name) || { name, bytes: 0, blocks: 0 };
    sum.bytes += table.size[block];
    sum.blocks++;
    sums.set(name, sum);
  }
  return [...sums.values()].sort((one, other) => other.bytes - one.bytes || other.blocks - one.blocks);
}

// The group of each block by the text of its answer; the last label takes the rest.
function groupsBy(table, mask, question, labels) {
  const numbers = new Map(labels.map((label, i) => [label, i])), of = new Uint8Array(table.count).fill(nothing);
  for (let i = 0; i < table.count; i++) {
    if (mask[i]) {
      const number = numbers.get(question(i));
      of[i] = number === undefined ? labels.length - 1 : number;
    }
  }
  return of;
}

// The labels of the nine answers with the most bytes after an event, and "others" if there are more.
function labelsBy(table, mask, question, event) {
  const labels = sumsBy(table, table.liveAt(event, mask), question).map(({ name }) => name);
  const known = new Set(labels);
  for (let i = 0; i < table.count && known.size <= 9; i++) {
    if (mask[i] && !known.has(question(i))) {
      known.add(question(i));
    }
  }
  const all = [...known];
  return all.length > 9 ? [...all.slice(0, 9), "others"] : all.length > 0 ? all : ["nothing"];
}

// The event after which the blocks of the mask hold the most.
function peakOf(table, mask) {
  let live = 0, most = 0, event = 0;
  for (let at = 0; at < table.events; at++) {
    const owner = table.owner[at];
    if (owner >= 0 && mask[owner >> 1]) {
      live += owner % 2 ? -table.size[owner >> 1] : table.size[owner >> 1];
      if (live > most) {
        [most, event] = [live, at];
      }
    }
  }
  return { bytes: most, event };
}

// Events from one to another in at most twice `most` buckets, none with more than its part of the events or of the
// time, as the tool makes them for a whole recording. Stacks have the bytes of each group.
function levelOf(table, groupOf, groups, from, to, most) {
  const level = { first_event: [], last_event: [], first_time: [], last_time: [], low: [], high: [], end: [],
                  high_event: [], stacks: { high: [], end: [] } };
  const widest = Math.floor((to - from) / most) + 1;
  const longest = (table.timeOf(to) - table.timeOf(from)) / most + 1;
  const live = new Array(groups).fill(0);
  let sum = 0, last = -1, time = table.timeOf(from);
  const count = (block, size) => {
    if (groupOf[block] !== nothing) {
      live[groupOf[block]] += size;
      sum += size;
    }
  };
  for (let i = 0; i < table.count && table.first[i] < from; i++) {
    if (table.last[i] >= from) {
      count(i, table.size[i]);
    }
  }
  const close = () => {
    if (last >= 0) {
      level.end[last] = sum;
      level.stacks.end[last] = live.slice();
    }
  };
  for (let event = from; event <= to; event++) {
    const owner = table.owner[event], block = owner >> 1;
    if (owner >= 0) {
      time = owner % 2 ? table.end[block] : Math.max(table.begin[block], table.data.begin);
    }
    if (last < 0 || event - level.first_event[last] >= widest || time - level.first_time[last] >= longest) {
      close();
      last++;
      level.first_event[last] = event;
      level.first_time[last] = time;
      level.low[last] = Infinity;
      level.high[last] = -1;
      level.stacks.high[last] = [];
    }
    if (owner >= 0) {
      count(block, owner % 2 ? -table.size[block] : table.size[block]);
    }
    level.last_event[last] = event;
    level.last_time[last] = time;
    level.low[last] = Math.min(level.low[last], sum);
    if (sum > level.high[last]) {
      level.high[last] = sum;
      level.high_event[last] = event;
      live.forEach((bytes, group) => { level.stacks.high[last][group] = bytes; });
    }
  }
  close();
  return level;
}

// The block at a height of the stack after an event: the groups lie on each other, and in each group the older blocks
// lie below.
function blockAtHeight(table, groupOf, groups, event, height) {
  const blocks = table.liveAt(event, groupOf.map((group) => group !== nothing));
  for (let group = 0, below = 0; group < groups; group++) {
    for (const block of blocks) {
      if (groupOf[block] === group) {
        below += table.size[block];
        if (height < below) {
          return block;
        }
      }
    }
  }
  return -1;
}

const mostChildren = 24;

// A tree of the blocks: `pathOf` answers where each belongs, from the root on.
function flameOf(table, blocks, pathOf) {
  const root = { name: "all", bytes: 0, blocks: 0, children: new Map() };
  const grow = (node, block) => {
    node.bytes += table.size[block];
    node.blocks++;
  };
  for (const block of blocks) {
    let node = root;
    grow(node, block);
    for (const name of pathOf(block)) {
      if (!node.children.has(name)) {
        node.children.set(name, { name, bytes: 0, blocks: 0, children: new Map() });
      }
      node = node.children.get(name);
      grow(node, block);
    }
  }
  return pruned(root);
}

// Children by their bytes, the largest first; those beyond the limit are one.
function pruned(node) {
  const children = [...node.children.values()].sort((one, other) => other.bytes - one.bytes).map(pruned);
  const rest = children.splice(children.length > mostChildren ? mostChildren - 1 : children.length);
  if (rest.length > 0) {
    const sum = (key) => rest.reduce((all, child) => all + child[key], 0);
    children.push({ name: rest.length + " others", bytes: sum("bytes"), blocks: sum("blocks"), children: [] });
  }
  return { ...node, children };
}

// The path of a block for questions; "calls" are the lines of its stack, the outermost first.
function pathBy(table, levels) {
  const questions = levels.map((level) => level === "calls" ? null : questionOf(table, level));
  const calls = table.calls.frames.map((frames, site) => {
    const lines = frames.filter(([, , kind]) => kind !== compiled);
    return lines.length > 0 ? lines.map(([text]) => table.calls.texts[text]).reverse()
      : [table.calls.texts[table.calls.caller[site]]];
  });
  return (block) => questions.flatMap((question) => question ? [question(block)] : calls[table.site[block]]);
}

// Those with the most bytes; earlier ones first among equals.
function largestOf(table, blocks, most) {
  const largest = [];
  for (const block of blocks) {
    if (largest.length < most || table.size[block] > table.size[largest[most - 1]]) {
      let at = largest.length;
      while (at > 0 && table.size[largest[at - 1]] < table.size[block]) {
        at--;
      }
      largest.splice(at, 0, block);
      largest.length = Math.min(largest.length, most);
    }
  }
  return largest;
}

function blocksOf(table, mask) {
  const blocks = [];
  for (let i = 0; i < table.count; i++) {
    if (mask[i]) {
      blocks.push(i);
    }
  }
  return blocks;
}

// The blocks that were never freed, by caller, or by size where there are no callers: their bytes, when, how much of it
// began in each part of the time, and `held`: bytes times how long they have been held.
function unfreedBy(table, mask, parts) {
  const begin = table.timeOf(0), length = Math.max(1, table.timeOf(table.events - 1) - begin);
  const blocks = blocksOf(table, mask).filter((block) => table.isUnfreed(block));
  const question = questionOf(table, table.hasCallers ? "caller" : "size");
  const rows = new Map(sumsBy(table, blocks, question).map((sum) =>
    [sum.name, { ...sum, from: Infinity, to: 0, held: 0, times: new Array(parts).fill(0) }]));
  for (const block of blocks) {
    const row = rows.get(question(block)), at = table.begin[block];
    row.from = Math.min(row.from, at);
    row.to = Math.max(row.to, at);
    row.held += table.size[block] * (begin + length - at);
    row.times[Math.min(parts - 1, Math.floor((at - begin) / length * parts))] += table.size[block];
  }
  return [...rows.values()];
}

// For each stream: its bytes after an event, its peak and the peak's time, and the bytes freed elsewhere.
function streamsAt(table, mask, event) {
  const rows = table.data.streams.map((name) =>
    ({ name, now: 0, most: 0, at: 0, live: 0, blocks: 0, bytes: 0, elsewhere: 0 }));
  for (let at = 0; at < table.events; at++) {
    const owner = table.owner[at], block = owner >> 1;
    if (owner >= 0 && mask[block]) {
      const row = rows[Math.min(table.stream[block], rows.length - 1)], size = table.size[block];
      row.live += owner % 2 ? -size : size;
      row.now = at <= event ? row.live : row.now;
      row.blocks += owner % 2 ? 0 : 1;
      row.bytes += owner % 2 ? 0 : size;
      row.elsewhere += owner % 2 && !table.isDropped(block) && table.freed_on[block] !== table.stream[block] ? 1 : 0;
      if (row.live > row.most) {
        [row.most, row.at] = [row.live, at];
      }
    }
  }
  return rows.filter((row) => row.blocks > 0).sort((one, other) => other.most - one.most);
}
