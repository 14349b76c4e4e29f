/* Everything of a frame that is text: verdict, state, the numbers over the maps and the tables. */

const { put, keep, row, keys, chips, explanation } =
  await import(`./dom.js${new URL(import.meta.url).search}`);

const SPOKEN_MS = 5000;  // the verdict is announced at most this often

export class Words {
  constructor(view) { this.view = view; }

  show(frame) {
    const { find } = this.view;
    this.verdict(frame);
    put(find("step"), `step ${frame.step.toLocaleString("en")}`);
    find("tensors").hidden = !frame.past.replayed;
    chips(find("chips"), frame.status);
    put(find("stamp"), `${frame.stamp} | ${location.href}`);
    for (const [name, colour] of Object.entries(frame.legend)) {
      this.view.root.style.setProperty(`--kv-c-${name}`, colour);
    }
    for (const [name, lane] of Object.entries(frame.lanes)) this.lane(name, lane, name in frame.stopped);
    for (const [name, words] of Object.entries(frame.said)) find(name).setAttribute("aria-label", words);
    if (frame.numbers) this.tables(frame.numbers, Object.keys(frame.lanes));
  }

  verdict(frame) {
    const { find } = this.view;
    if (frame.state === "failed") {
      find("verdict").dataset.tone = "alarm";
      put(find("text"), frame.verdict ? `The engine stopped at step ${frame.step.toLocaleString("en")}.`
        : "The engine could not start.");
      put(find("detail"), frame.verdict ? "What is shown is its last picture." : "");
    } else if (frame.verdict) {
      find("verdict").dataset.tone = frame.verdict.tone;
      put(find("text"), frame.verdict.text);
      put(find("detail"), frame.verdict.detail);
      this.speak(frame.verdict.text);
    } else {
      find("verdict").dataset.tone = "calm";
      put(find("text"), frame.message || "Loading the model and the kernels…");
      put(find("detail"), "");
    }
  }

  lane(name, lane, stopped) {
    const { find } = this.view, card = find(`lane-${name}`);
    if (!card) return;  // the lanes have just been changed: the page is told next
    card.style.setProperty("--kv-lane", lane.colour);
    card.toggleAttribute("data-stopped", stopped);
    put(card.querySelector(".kv-what"), lane.what);
    keys(find(`key-${name}`), lane.key);
    this.figures(card.querySelector(".kv-figures"), lane.figures, name);
    find(`map-${name}`).setAttribute("aria-label", lane.alt);
  }

  figures(node, rows, lane) {
    keep(node, rows.length, () => {
      const box = this.view.tips.explained(document.createElement("div"));
      box.className = "kv-figure";
      box.append(document.createElement("b"), document.createElement("span"));
      return box;
    });
    rows.forEach((row, i) => {
      const box = node.children[i];
      put(box.children[0], row.value);
      this.named(box.children[1], row.name);
      box.kvTip = explanation(row, lane);
    });
  }

  /* One table a group, a row a number, a column a lane. */
  tables(groups, lanes) {
    Object.entries(groups).forEach(([title, rows], at) => {
      const table = this.view.find(`numbers-${at}`);
      if (!table) return;
      put(table.previousElementSibling, title);
      const [head, body] = table.children;
      row(head, 0, ["number", ...lanes], (cell, name) => put(cell, name), "th");
      keep(body, Object.keys(rows).length, () => document.createElement("tr"));
      Object.entries(rows).forEach(([name, cells], i) => {
        row(body, i, [name, ...lanes], (cell, lane, j) => {
          if (j === 0) { this.named(cell, name); return; }
          const number = cells[lane];
          this.view.tips.explained(cell);
          put(cell, number.value);
          if (cell.dataset.kind !== number.kind) cell.dataset.kind = number.kind;
          cell.kvTip = explanation(number, lane);
        }, "td");
      });
    });
  }

  /* A number's name leads to its term. */
  named(node, name) {
    const anchor = this.view.terms[name];
    if (!anchor) { put(node, name); return; }
    const link = node.firstElementChild || node.appendChild(document.createElement("a"));
    link.className = "kv-term";
    link.href = `${this.view.base}terms#${anchor}`;
    put(link, name);
  }

  speak(text) {
    const now = performance.now();
    if (this.spoken === text || now - (this.spokeAt || -1e9) < SPOKEN_MS) return;
    this.spoken = text;
    this.spokeAt = now;
    put(this.view.find("spoken"), text);
  }
}
