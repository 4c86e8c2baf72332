// Histograms: [from, blocks, bytes ever allocated, bytes at the peak] for each bar.

const measures = ["blocks", "bytes allocated", "bytes at the peak"];

class Bars {
  constructor(parent, rows, id) {
    this.rows = rows;
    choices(parent, "show", measures, measures[0], (name) => this.draw(1 + measures.indexOf(name)));
    this.box = add(parent, "div", "bars");
    this.box.id = id;
    this.draw(1);
  }

  draw(measure) {
    this.box.replaceChildren();
    const most = Math.max(1, ...this.rows.map(({ bar }) => bar[measure]));
    for (const { label, bar } of this.rows) {
      add(this.box, "span", "name", label);
      const track = add(this.box, "span", "track");
      add(track, "i").style.width = 100 * bar[measure] / most + "%";
      const value = add(this.box, "span", "value", measure === 1 ? count(bar[1]) : bytes(bar[measure]));
      value.dataset.value = bar[measure];
    }
  }
}

function lifetimeRows(memory) {
  const rows = memory.lifetimes.map((bar, i) => {
    const next = memory.lifetimes[i + 1];
    return { label: bar[0] === 0 ? "under 1 us" : duration(bar[0]) + (next ? " to " + duration(next[0]) : " or more"), bar };
  });
  const others = [{ label: "never freed", bar: memory.unfreed }, { label: "dropped, not freed", bar: memory.dropped }];
  return rows.concat(others.filter(({ bar }) => bar[1] > 0));
}

function sizeRows(memory) {
  return memory.sizes.map((bar) => ({ label: "from " + bytes(bar[0]), bar }));
}

// Cells are texts, or numbers with their meaning: [text, value].
function tableOf(parent, titles, rows) {
  const box = add(parent, "div", "scroll");
  const made = add(box, "table");
  const head = add(add(made, "thead"), "tr");
  titles.forEach((title) => add(head, "th", "", title));
  const body = add(made, "tbody");
  for (const row of rows) {
    const line = add(body, "tr");
    row.forEach((cell, i) => {
      const [text, value] = Array.isArray(cell) ? cell : [cell];
      const made = add(line, i === 0 ? "th" : "td", "", shortened(String(text), 200));
      if (value !== undefined) {
        made.dataset.value = value;
      }
    });
  }
  return made;
}
