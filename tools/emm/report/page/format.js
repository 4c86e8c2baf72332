// Texts out of numbers, and elements. A name from the recording becomes text, never markup.

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; unit++) {
    value /= 1024;
  }
  return (unit === 0 ? String(value) : value.toFixed(1)) + " " + units[unit];
}

// Sizes of one list: exact if two of them would look the same.
function sizeTexts(values) {
  const of = new Map();
  values.forEach((value) => of.set(bytes(value), (of.get(bytes(value)) || new Set()).add(value)));
  return values.map((value) => of.get(bytes(value)).size > 1 ? count(value) + " B" : bytes(value));
}

// On an axis: 1.25 GiB, not 1.3.
function tickBytes(value) {
  const text = bytes(value), unit = text.slice(text.indexOf(" "));
  const size = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].indexOf(unit.trim());
  return String(Number((value / size).toFixed(3))) + unit;
}

function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

function percent(part, whole) {
  const share = whole > 0 ? 100 * part / whole : 0;
  return (share > 0 && share < 1 ? "under 1" : share.toFixed(0)) + " %";
}

// Nanoseconds.
function duration(value) {
  const units = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];
  const [name, size] = units.find(([, least]) => value >= least) || units[3];
  const scaled = value / size;
  return String(Number(scaled.toPrecision(scaled >= 1000 ? 4 : 3))) + " " + name;
}

// A moment on an axis whose ticks are `step` nanoseconds apart.
function moment(value, step) {
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / 1e9))));
  return (value / 1e9).toFixed(digits) + " s";
}

function shortened(text, most) {
  if (text.length <= most) {
    return text;
  }
  const head = Math.ceil((most - 3) / 2);
  return text.slice(0, head) + "..." + text.slice(text.length - (most - 3 - head));
}

// The file name of a library, or the whole of another name.
function plainName(text) {
  return shortened(text.startsWith("/") ? text.slice(text.lastIndexOf("/") + 1) : text, 120);
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) {
    made.className = className;
  }
  if (text !== undefined) {
    made.append(...String(text).split(/(--[a-z]{1,20})/).map((part, i) => i % 2 ? option(part) : part));
  }
  return made;
}

// An option such as --compare, not broken at its hyphens.
function option(text) {
  const made = document.createElement("span");
  made.className = "option";
  made.textContent = text;
  return made;
}

function add(parent, tag, className, text) {
  return parent.appendChild(element(tag, className, text));
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// A name has the colour of its hash in every report, unless a name before it in the list has that colour: then the next
// free one. A name keeps its colour in all lists of the page.
const groupColors = 17;
const knownColors = new Map();
function colorsOf(names) {
  const isNone = (name) => name === "others" || name === "nothing";
  const taken = new Set(names.filter((name) => !isNone(name)).map((name) => knownColors.get(name)));
  for (const name of names.filter((one) => !isNone(one) && !knownColors.has(one))) {
    let number = [...name].reduce((hash, letter) => (hash * 31 + letter.codePointAt(0)) % 1000003, 7) % groupColors;
    for (let tried = 0; taken.has(number) && tried < groupColors; tried++) {
      number = (number + 1) % groupColors;
    }
    taken.add(number);
    knownColors.set(name, number);
  }
  return names.map((name) => color(isNone(name) ? "others" : "group" + knownColors.get(name)));
}

// One line of text beside the pointer.
const tip = {
  box: null,
  show(event, lines) {
    this.box = this.box || add(document.body, "div", "tip");
    this.box.replaceChildren(...lines.map((line) => element("div", "", line)));
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 18 + height < window.innerHeight;
    this.box.style.left = Math.max(4, left) + "px";
    this.box.style.top = (below ? event.clientY + 18 : Math.max(4, event.clientY - height - 10)) + "px";
  },
  hide() {
    if (this.box) {
      this.box.hidden = true;
    }
  },
};

// Shows a tip while the pointer is over an element; null: no tip.
function tipOn(target, linesAt) {
  target.addEventListener("pointermove", (event) => {
    const lines = linesAt(event);
    lines ? tip.show(event, lines) : tip.hide();
  });
  target.addEventListener("pointerleave", () => tip.hide());
}

function addButton(parent, className, text, action) {
  const button = add(parent, "button", className, text);
  button.type = "button";
  button.addEventListener("click", action);
  return button;
}

function groupsOf(memory, name) {
  return memory.groups.find((groups) => groups.name === name);
}

// Buttons, one of which is chosen.
function choices(parent, label, names, chosen, choose) {
  const row = add(parent, "div", "choices");
  add(row, "span", "label", label);
  const buttons = names.map((name) => {
    const button = addButton(row, "", name, () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      choose(name);
    });
    button.setAttribute("aria-pressed", String(name === chosen));
    return button;
  });
  return row;
}

function section(title, about) {
  const made = element("section");
  add(made, "h2", "", title);
  if (about) {
    add(made, "p", "about", about);
  }
  return made;
}

// A canvas that is as sharp as the screen, drawn anew when its width or the colours change.
const canvases = [];
function canvasIn(parent, height, draw) {
  const canvas = add(parent, "canvas");
  canvas.style.height = height + "px";
  const redraw = () => {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    if (width > 0) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      const context = canvas.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.font = "12px system-ui, sans-serif";
      draw(context, width, height);
    }
  };
  canvases.push(redraw);
  return { canvas, redraw };
}

// The last index whose value is not above `value`; -1: there is no such index.
function lastNotAbove(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}
