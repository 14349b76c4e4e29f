/* Past steps of a paused run: a scrubber, the arrow keys, jumps from refusal to refusal. */

const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: 50, PageDown: -50 };
const EDITS = "input, select, textarea, [role=slider], [role=combobox], [role=row], [contenteditable]";

export class Scrubber {
  constructor(view, node) {
    this.view = view;
    this.node = node;
    node.hidden = true;
    node.innerHTML = `
      <button data-kv="refusal-before" title="Previous refusal for want of memory, in any lane"
        aria-label="Previous refusal">\u25c0 refusal</button>
      <input type="range" data-kv="scrub" min="0" max="0" step="1" aria-label="Step that is shown">
      <button data-kv="refusal-after" title="Next refusal for want of memory, in any lane"
        aria-label="Next refusal">refusal \u25b6</button>
      <button data-kv="newest">Back to live</button>
      <span class="kv-kept" data-kv="kept"></span>`;
    const find = (name) => node.querySelector(`[data-kv="${name}"]`);
    this.range = find("scrub");
    this.kept = find("kept");
    this.newest = find("newest");
    this.range.addEventListener("input", () => this.go(Number(this.range.value)));
    find("refusal-before").onclick = () => this.look("previous");
    find("refusal-after").onclick = () => this.look("next");
    this.newest.onclick = () => this.look(null);
    document.addEventListener("keydown", (event) => this.key(event), { signal: view.ended.signal });
  }

  /* Look at this step of the run. */
  go(step) {
    this.look(step);
    this.wanted = step;
  }

  look(what) {
    this.wanted = null;
    this.view.send({ look: what });
  }

  /* Has another step been asked for, so that nobody waits for this one? */
  passed({ step, past }) {
    return this.wanted != null && this.wanted !== step
      && past.first <= this.wanted && this.wanted <= past.last;
  }

  show(frame) {
    const { first, last, looking } = frame.past;
    this.stands = frame.state === "paused" || frame.state === "asleep" || looking;
    this.node.hidden = !this.stands || last < 0;
    if (this.node.hidden) return;
    this.range.min = first;
    this.range.max = last;
    if (document.activeElement !== this.range || this.wanted === frame.step || !looking) {
      this.range.value = frame.step;  // while it is dragged, older frames come in
    }
    this.range.setAttribute("aria-valuetext", `step ${frame.step.toLocaleString("en")}`);
    this.newest.disabled = !looking;
    const n = (value) => value.toLocaleString("en");
    const text = first > 0 ? `steps ${n(first)} to ${n(last)}; the ones before are not kept`
      : `steps 0 to ${n(last)}`;
    if (this.kept.textContent !== text) this.kept.textContent = text;
    this.step = frame.step;
  }

  key(event) {
    if (this.node.hidden || !(event.key in KEYS) || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target !== this.range && event.target.closest && event.target.closest(EDITS)) return;
    event.preventDefault();
    const step = Number(this.range.value) + KEYS[event.key];
    this.range.value = Math.max(Number(this.range.min), Math.min(Number(this.range.max), step));
    this.go(Number(this.range.value));
  }
}
