/* Two lines over the picture of the whole run: the step that is shown, and the pinned step A. The
   picture itself is not drawn again when they move. */

const LINES = ["shown", "pinned"];

export class RunCursor {
  constructor(view) { this.view = view; }

  show(frame) {
    const node = this.view.plots.nodes.run;
    if (!node) return;
    if (this.node !== node) this.attach(node);
    this.steps = { shown: frame.step, pinned: this.view.moments.held ?? null };
    this.place();
  }

  attach(node) {
    this.node = node;
    this.lines = Object.fromEntries(LINES.map((name) => {
      const line = document.createElement("div");
      line.className = "kv-cursor";
      line.dataset.kv = `cursor-${name}`;
      line.append(document.createElement("span"));
      node.append(line);
      return [name, line];
    }));
    node.on("plotly_afterplot", () => this.place());
  }

  /* Where the steps are on the axis now; a line outside of a zoomed picture is hidden. */
  place() {
    if (!this.steps || !this.node._fullLayout) return;
    const { xaxis: x, yaxis: y } = this.node._fullLayout;
    for (const [name, line] of Object.entries(this.lines)) {
      const step = this.steps[name], at = step === null ? NaN : x.d2p(step);
      line.hidden = !(at >= 0 && at <= x._length);
      if (line.hidden) continue;
      line.style.transform = `translateX(${x._offset + at}px)`;
      line.style.top = `${y._offset}px`;
      line.style.height = `${y._length}px`;
      line.toggleAttribute("data-left", at > x._length / 2);
      line.dataset.step = step;
      line.firstChild.textContent = `${name === "pinned" ? "A: " : ""}${step.toLocaleString("en")}`;
    }
  }
}
