/* The small window beside the pointer: what a number means, what lies in a cell. */

const here = new URL(import.meta.url).search;
const [{ put }, { slotUnder, describe }] = await Promise.all(["dom.js", "slots.js"].map((name) => import(`./${name}${here}`)));

export class Tips {
  constructor(view) {
    this.view = view;
    this.tip = view.find("tip");
  }

  /* Hover, focus and touch open the explanation; Escape closes it. */
  explained(node) {
    if (node.kvExplained) return node;
    node.kvExplained = true;
    node.tabIndex = 0;
    node.setAttribute("aria-describedby", "kv-tip");
    const show = () => { this.explains = node; this.refresh(); };
    const hide = () => { if (this.explains === node) this.hide(); };
    for (const kind of ["pointerenter", "focus", "click"]) node.addEventListener(kind, show);
    node.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    node.addEventListener("blur", hide);
    node.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
    return node;
  }

  /* The explained number may have another value by now, or be gone. */
  refresh() {
    const node = this.explains;
    if (!node || !node.kvTip) return;
    if (!node.isConnected) { this.hide(); return; }
    const { tip } = this;
    put(tip, node.kvTip);
    tip.dataset.wide = "";
    tip.style.display = "block";
    const root = this.view.root.getBoundingClientRect(), box = node.getBoundingClientRect();
    const below = box.bottom + 6 + tip.offsetHeight <= innerHeight || box.top < tip.offsetHeight + 6;
    tip.style.left = `${Math.max(0, Math.min(box.left - root.left, root.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${below ? box.bottom - root.top + 4 : box.top - root.top - tip.offsetHeight - 4}px`;
  }

  show() { this.refresh(); }

  /* The cell of a map under the pointer. */
  cell(lane, node, event) {
    const hover = this.view.hover[lane], slot = slotUnder(node, event, hover);
    if (slot === null) { this.hideCell(); return; }
    const { tip } = this;
    this.explains = null;
    delete tip.dataset.wide;
    put(tip, describe(hover, slot));
    tip.style.display = "block";
    const box = this.view.root.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = `${Math.min(x + 14, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${y + 16}px`;
  }

  hideCell() { this.tip.style.display = "none"; }

  hide() {
    this.explains = null;
    this.hideCell();
  }
}
