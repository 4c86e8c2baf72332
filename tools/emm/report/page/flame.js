// What was live at the peak: a row for each question, and below each block what it is made of.

class Flame {
  constructor(parent, memory) {
    this.memory = memory;
    const names = memory.flames.map((flame) => flame.levels.join(" > "));
    if (names.length > 1) {
      choices(parent, "by", names, names[0], (name) => this.choose(names.indexOf(name)));
    } else {
      add(parent, "p", "about", "by " + names[0]);
    }
    this.path = add(parent, "div", "path");
    this.box = add(parent, "div", "flame");
    this.choose(0);
  }

  choose(flame) {
    this.flame = this.memory.flames[flame];
    this.zoom([this.flame.root]);
  }

  get ofCalls() {
    return this.flame.levels[0] === "calls";
  }

  // What a block below another one answers; calls go as deep as they go.
  kindOf(node, depth) {
    return !this.ofCalls ? this.flame.levels[depth - 1] : node.children ? "call" : "size";
  }

  // The colour that the same name has in the chart. A call has its own, or that of the one around it.
  colorIn(node, index, around) {
    if (!this.ofCalls) {
      return around || this.colorOf(node.name, index);
    }
    const callers = groupsOf(this.memory, "caller");
    const group = callers ? callers.labels.indexOf(node.name) : -1;
    return group >= 0 ? groupColor(group, callers) : around;
  }
  colorOf(name, index) {
    const groups = groupsOf(this.memory, this.flame.levels[0]);
    const group = groups ? groups.labels.indexOf(name) : index;
    return group >= 0 ? groups ? groupColor(group, groups) : color("group" + group % 9) : color("others");
  }

  zoom(chain) {
    this.chain = chain;
    this.draw();
  }

  // Names are where there is room for them, so it is drawn once it has its width.
  draw() {
    const { chain } = this;
    this.path.replaceChildren();
    chain.forEach((node, i) => {
      const button = addButton(this.path, "", i === 0 ? "all" : plainName(node.name),
                               () => this.zoom(chain.slice(0, i + 1)));
      button.disabled = i + 1 === chain.length;
    });
    this.box.replaceChildren();
    const depth = (node) => 1 + Math.max(0, ...(node.children || []).map(depth));
    this.box.style.height = depth(chain[chain.length - 1]) * 30 + "px";
    const shade = chain.slice(1).reduce((around, node) => this.colorIn(node, 0, around), null);
    this.place(chain[chain.length - 1], chain, 0, 1, shade);
  }

  titleOf(node, depth) {
    if (depth === 0) {
      return "live at the peak";
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
      depth === 0 ? "all that was live at the peak" : this.kindOf(node, depth) + ": " + shortened(node.name, 400),
      bytes(node.bytes) + " (" + count(node.bytes) + " bytes) in " + count(node.blocks) + " blocks",
      percent(node.bytes, this.flame.root.bytes) + " of the peak",
    ]);
    let from = left;
    (node.children || []).forEach((child, i) => {
      const part = node.bytes > 0 ? width * child.bytes / node.bytes : 0;
      if (part > 0.001) {
        this.place(child, chain.concat(child), from, part, this.colorIn(child, i, shade));
      }
      from += part;
    });
  }
}
