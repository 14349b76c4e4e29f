/* A link to what is shown: the settings are in the address already; step, request and colours are
   added here. Opening it makes the same run anew, up to that step. */

export class Link {
  constructor(view, button, field, note) {
    Object.assign(this, { view, button, field, note });
    button.onclick = () => this.copy();
    field.onfocus = () => field.select();
  }

  address() {
    const link = new URL(location.href);
    const set = (name, value) => (value == null ? link.searchParams.delete(name) : link.searchParams.set(name, value));
    set("step", this.step);
    set("sel", this.view.inspector.selected);
    set("colour", this.view.find("colour").value === "request" ? null : this.view.find("colour").value);
    return link.href;
  }

  async copy() {
    this.field.value = this.address();
    this.field.hidden = false;
    let words = "Select the link to copy it.";
    try {
      await navigator.clipboard.writeText(this.field.value);
      words = "Copied.";
    } catch (error) {
      this.field.focus();
    }
    const changes = this.changes.length ? ` The run was changed by hand while it went on, at step ${this.changes.join(", ")}: ` +
      "the link starts from step 0 with the settings of now, and need not lead to this picture." : "";
    this.note.textContent = [words + changes, ...this.needs].join(" ");
  }

  show(frame) {
    this.step = frame.step;
    this.changes = frame.past.changes;
    this.needs = frame.past.needs;
    if (this.last !== frame.step) { this.field.hidden = true; this.note.textContent = ""; }
    this.last = frame.step;
  }
}

/* What the address of this page asks for beside the settings. */
export function linked() {
  const given = new URL(location.href).searchParams;
  const number = (name) => (/^\d{1,12}$/.test(given.get(name) || "") ? Number(given.get(name)) : null);
  return { step: number("step"), sel: number("sel"), colour: given.get("colour") };
}
