// The live memory at the moment: a row for each question, and below each block its parts.

// The questions that a recording answers, level by level.
function flameLevels({ table, memory }) {
  const { frames, texts, library } = table.calls;
  const has = (name) => Boolean(groupsOf(memory, name));
  const python = frames.some((one) => one.some(([, , kind]) => kind !== compiled));
  return [...(python ? [["calls", "size"]] : []),
          ...(has("library") && library.some((one) => texts[one] !== "unknown") ? [["library", "caller", "size"]]
            : has("caller") ? [["caller", "size"]] : []),
          ...(has("tag") ? [["tag", "caller", "size"]] : []),
          ["lifetime", "size"], ...["stream", "thread", "pool"].filter(has).map((name) => [name, "lifetime", "size"])];
}

class Flame {
  constructor(parent, view) {
    this.view = view;
    this.all = flameLevels(view);
    const names = this.all.map((levels) => levels.join(" > "));
    if (names.length > 1) {
      choices(parent, "by", names, names[0], (name) => this.choose(names.indexOf(name)));
    } else {
      add(parent, "p", "about", "by " + names[0]);
    }
    this.path = add(parent, "div", "path");
    this.box = add(parent, "div", "flame");
    this.levels = this.all[0];
    view.movers.push(() => this.grow());
  }

  choose(flame) {
    this.levels = this.all[flame];
    this.pathOf = null;
    this.chain = null;
    this.grow();
  }

  // The tree of the blocks at the moment. Opened parts stay open, as far as they still exist.
  grow() {
    const { table, live } = this.view;
    this.pathOf = this.pathOf || pathBy(table, this.levels);
    this.root = flameOf(table, live, this.pathOf);
    const chain = [this.root];
    for (const { name } of (this.chain || []).slice(1)) {
      const next = chain[chain.length - 1].children.find((child) => child.name === name);
      if (!next) {
        break;
      }
      chain.push(next);
    }
    this.zoom(chain);
  }

  get ofCalls() {
    return this.levels[0] === "calls";
  }

  // The question that a block below another one answers; calls go as deep as they go.
  kindOf(node, depth) {
    return !this.ofCalls ? this.levels[depth - 1] : node.children.length > 0 ? "call" : "size";
  }

  // The colour of the same name in the chart. A call has its own, or the colour of the call around it.
  colorIn(node, around) {
    if (!this.ofCalls) {
      return around || this.colorOf(node.name);
    }
    return this.groupColor("caller", node.name) || around;
  }
  colorOf(name) {
    return this.groupColor(this.levels[0], name) || color("others");
  }
  groupColor(question, name) {
    const { view } = this, counted = groupsOf(view.memory, question);
    const labels = question === view.group ? view.labels : counted ? counted.labels : [];
    return labels.includes(name) ? colorsOf(labels)[labels.indexOf(name)] : null;
  }

  zoom(chain) {
    this.chain = chain;
    this.draw();
  }

  // Names need room, so the drawing waits until the width is known.
  draw() {
    const { chain } = this;
    this.path.replaceChildren();
    chain.forEach((node, i) => {
      const button = addButton(this.path, "", i === 0 ? "all" : plainName(node.name),
                               () => this.zoom(chain.slice(0, i + 1)));
      button.disabled = i + 1 === chain.length;
    });
    this.box.replaceChildren();
    const depth = (node) => 1 + Math.max(0, ...node.children.map(depth));
    this.box.style.height = depth(chain[chain.length - 1]) * 30 + "px";
    const shade = chain.slice(1).reduce((around, node) => this.colorIn(node, around), null);
    this.place(chain[chain.length - 1], chain, 0, 1, shade);
  }

  titleOf(node, depth) {
    if (depth === 0) {
      return "live at the moment";
    }
    const isSize = this.kindOf(node, depth) === "size" && !/^[0-9]+ others$/.test(node.name);
    return (isSize ? count(node.blocks) + " x " : "") + plainName(node.name);
  }

  place(node, chain, left, width, shade) {
    const depth = chain.length - 1;
    const button = addButton(this.box, "node", undefined, () => this.zoom(chain));
    button.style.left = 100 * left + "%";
    button.style.width = "calc(" + 100 * width + "% - 1px)";
    button.style.top = (depth - this.chain.length + 1) * 30 + "px";
    button.style.background = shade || color("all");
    button.style.color = shade ? "" : color("ink");
    button.style.filter = depth > 1 && !this.ofCalls ? "brightness(" + (1 + 0.12 * (depth - 1)) + ")" : "";
    if (width * this.box.clientWidth > 60) {
      add(button, "b", "", bytes(node.bytes));
      add(button, "span", "", " " + this.titleOf(node, depth));
    }
    button.setAttribute("aria-label", this.titleOf(node, depth) + ", " + bytes(node.bytes));
    tipOn(button, () => [
      depth === 0 ? "all that was live at the moment" : this.kindOf(node, depth) + ": " + shortened(node.name, 400),
      bytes(node.bytes) + " (" + count(node.bytes) + " bytes) in " + count(node.blocks) + " blocks",
      percent(node.bytes, this.root.bytes) + " of what was live",
    ]);
    let from = left;
    node.children.forEach((child) => {
      const part = node.bytes > 0 ? width * child.bytes / node.bytes : 0;
      if (part > 0.001) {
        this.place(child, chain.concat(child), from, part, this.colorIn(child, shade));
      }
      from += part;
    });
  }
}
