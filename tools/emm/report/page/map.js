// Where blocks lay, at moments that a slider reaches.

class AddressMap {
  constructor(parent, title, map) {
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
  }

  show(moment) {
    this.moment = moment;
    this.redraw();
  }

  draw(context, width, height, rows) {
    const { map } = this, cell = { width: width / 64, height: height / rows };
    const cells = this.cells[this.moment];
    const colors = map.labels.map((_, group) => groupColor(group, map));
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

  linesAt(event) {
    const box = this.canvas.getBoundingClientRect(), { map } = this;
    const column = Math.floor((event.clientX - box.left) / box.width * 64);
    const row = Math.floor((event.clientY - box.top) / box.height * this.rows);
    const cell = row * 64 + column;
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

// The slider under all maps of one recording; `maps` are [title, map].
function mapSlider(parent, view, maps, peak) {
  const grid = add(parent, "div", maps.length > 1 ? "grid" : "");
  const drawn = maps.map(([title, map]) => new AddressMap(grid, title, map));
  const moments = maps[0][1].moments;
  const row = add(parent, "div", "slider");
  const label = add(row, "label", "", "moment");
  const slider = add(label, "input");
  slider.type = "range";
  slider.min = 0;
  slider.max = moments.length - 1;
  slider.id = "moment";
  const text = add(row, "output");
  const nearest = (event) => (map) => Math.max(0, lastNotAbove(map.moments.map((at) => at.event), event));
  const show = (number) => {
    const at = moments[number];
    drawn.forEach((one, i) => one.show(nearest(at.event)(maps[i][1])));
    text.textContent = moment(at.time, 1e3) + ", event " + count(at.event) + ", " + bytes(at.live) + " live";
    text.dataset.event = at.event;
    view.moment = at;
    view.changed();
  };
  slider.addEventListener("input", () => show(Number(slider.value)));
  const toPeak = () => {
    slider.value = nearest(peak)(maps[0][1]);
    show(Number(slider.value));
  };
  addButton(row, "", "to the peak", toPeak);
  toPeak();
  drawLegend(add(parent, "div", "legends"), maps[0][1], null);
}
