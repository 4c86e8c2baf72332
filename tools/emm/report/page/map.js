// The addresses of blocks, at moments that a slider reaches.

class AddressMap {
  constructor(parent, title, map, view) {
    this.map = map;
    this.cells = map.moments.map((at) => Uint8Array.from(atob(at.cells), (character) => character.charCodeAt(0)));
    this.moment = 0;
    const box = add(parent, "figure");
    add(box, "figcaption", "", title);
    const rows = Math.max(1, Math.ceil(map.starts.length / 64));
    const { canvas, redraw } = canvasIn(box, Math.min(330, rows * 11), (context, width, height) =>
      this.draw(context, width, height, rows));
    this.canvas = canvas;
    this.redraw = redraw;
    this.rows = rows;
    add(box, "p", "about", count(map.starts.length) + " cells of " + bytes(map.cell_bytes) +
        ", row by row in the order of addresses; the stronger the colour, the fuller." +
        (map.cuts.length > 0 ? " Wide unused gaps are left out: a bar stands for each." : ""));
    tipOn(canvas, (event) => this.linesAt(event));
    canvas.addEventListener("click", (event) => {
      const start = map.starts[this.cellAt(event)];
      if (start && map.isRecorded) {
        view.select({ ...noFilter, text: start });
      }
    });
  }

  show(moment) {
    this.moment = moment;
    this.redraw();
  }

  draw(context, width, height, rows) {
    const { map } = this, cell = { width: width / 64, height: height / rows };
    const cells = this.cells[this.moment];
    const colors = colorsOf(map.labels);
    cells.forEach((byte, i) => {
      const x = (i % 64) * cell.width, y = Math.floor(i / 64) * cell.height;
      context.globalAlpha = 1;
      context.fillStyle = color("empty");
      context.fillRect(x + 0.5, y + 0.5, cell.width - 1, cell.height - 1);
      if (byte >> 4 > 0) {
        context.globalAlpha = 0.25 + 0.75 * (byte >> 4) / 15;
        context.fillStyle = colors[byte & 15];
        context.fillRect(x + 0.5, y + 0.5, cell.width - 1, cell.height - 1);
      }
    });
    context.globalAlpha = 1;
    context.fillStyle = color("ink");
    for (const cut of map.cuts.slice(0, 200)) {
      context.fillRect((cut % 64) * cell.width - 1, Math.floor(cut / 64) * cell.height, 2, cell.height);
    }
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * 64);
    return Math.floor((event.clientY - box.top) / box.height * this.rows) * 64 + column;
  }

  linesAt(event) {
    const { map } = this, cell = this.cellAt(event);
    if (!map.starts[cell]) {
      return null;
    }
    const byte = this.cells[this.moment][cell];
    return [
      "from " + map.starts[cell],
      byte >> 4 === 0 ? "nothing live" : "about " + percent(byte >> 4, 15) + " live",
      ...(byte >> 4 === 0 ? [] : ["most of it: " + plainName(map.labels[byte & 15])]),
    ];
  }
}

// All maps of one recording, at their last moments up to the view's; `maps` are [title, map].
function mapsIn(parent, view, maps) {
  const grid = add(parent, "div", maps.length > 1 ? "grid" : "");
  const drawn = maps.map(([title, map]) => new AddressMap(grid, title, map, view));
  const said = add(parent, "p", "about");
  view.movers.push(() => {
    drawn.forEach((one) => one.show(Math.max(0, lastNotAbove(one.map.moments.map((at) => at.event), view.event))));
    const at = drawn[0].map.moments[drawn[0].moment];
    said.textContent = "As it was after event " + count(at.event) + ", " + moment(at.time, 1e3) + ", with " + bytes(at.live) + " live." +
      (at.event === view.event ? "" : " The page has " + count(maps[0][1].moments.length) + " moments.");
  });
  drawLegend(add(parent, "div", "legends"), maps[0][1].labels, []);
}
