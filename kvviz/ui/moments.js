/* Two views of the past: a pinned moment A with its difference to what is shown, and the whole run
   as one picture, time by address. */

const n = (value) => value.toLocaleString("en");

export class Moments {
  constructor(view, node) {
    this.view = view;
    this.node = node;
    const { lanes } = view;
    node.innerHTML = `<div class="kv-ask"><h4 aria-level="2">Moments</h4>
        <button data-kv="pin">Pin this step as A</button><button data-kv="unpin" hidden>Unpin</button>
        <label>whole run of <select data-kv="whole"><option value="">no lane</option>
          ${lanes.map((lane) => `<option>${lane}</option>`).join("")}</select></label></div>
      <p class="kv-diff" data-kv="diff" role="status"></p>
      <div class="kv-lanes" data-kv="pins" hidden>${lanes.map((lane) => `<section><h3>A: ${lane}</h3>
        <div class="kv-plot kv-map" data-kv="pin-${lane}" role="figure" aria-label="Memory map at the pinned step, ${lane}"></div>
        </section>`).join("")}</div>
      <div data-kv="run-box" hidden><h3>Whole run, time by address</h3><div class="kv-plot kv-run" data-kv="run" role="figure" tabindex="0"
        aria-label="Time by address: the whole run that is kept, a column a step"></div>
        <p class="kv-quiet">Click goes to that step; drag to zoom.</p></div>`;
    const find = (name) => node.querySelector(`[data-kv="${name}"]`);
    [this.pin, this.unpin, this.diff, this.pins, this.whole, this.box] =
      ["pin", "unpin", "diff", "pins", "whole", "run-box"].map(find);
    this.pin.onclick = () => this.hold(this.step);
    this.unpin.onclick = () => this.hold(null);
    this.whole.onchange = () => this.ask();
  }

  ask() {
    this.box.hidden = !this.whole.value;
    this.view.send({ run: this.whole.value || null, pin: this.held ?? null });
  }

  hold(step) {
    this.held = step;
    this.pins.hidden = this.unpin.hidden = step === null;
    if (step === null) this.diff.replaceChildren();
    this.ask();
  }

  show(frame) {
    this.step = frame.step;
    this.pin.disabled = frame.past.last < 0;
    if (frame.pinned && this.held != null) this.compare(frame.pinned);
  }

  compare({ steps, lanes }) {
    const signed = ([a, b]) => `${n(a)} to ${n(b)} (${b >= a ? "+" : "\u2212"}${n(Math.abs(b - a))})`;
    const lines = [`A is step ${n(steps[0])}; shown is step ${n(steps[1])}.`];
    for (const [lane, d] of Object.entries(lanes)) {
      const list = (ids, count) => `${n(count)}${ids.length ? ` (${ids.join(", ")}${count > ids.length ? ", \u2026" : ""})` : ""}`;
      lines.push(`${lane}: came ${list(d.came, d.came_count)}, went ${list(d.went, d.went_count)}; free ${signed(d.free)}, ` +
        `admissible ${signed(d.admissible)}, holes ${signed(d.holes)}`);
    }
    const text = lines.join("\n");
    if (this.diff.textContent !== text) this.diff.textContent = text;
  }

  /* The step under the pointer on the picture of the run. */
  go(node, event) {
    const x = node._fullLayout.xaxis;
    const step = Math.round(x.p2d(event.clientX - node.getBoundingClientRect().left - x._offset));
    const { min, max } = this.view.scrubber.range;
    this.view.jump(Math.max(Number(min), Math.min(Number(max), step)));
  }
}
