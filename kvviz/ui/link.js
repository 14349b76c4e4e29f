/* A link to what is shown. The settings are in the address already; the moment (step, pinned step
   A), what is selected and how it is looked at are added here. Opening it makes the same run anew,
   up to that step, and shows it in the same way. */

const NUMBER = /^\d{1,12}$/;
// Streamlit's own parameter: it goes before the reader's theme, for the whole page
const THEME = /^(light|dark)_theme$/i;
const COLOURS = ["request", "state", "age"];
// No character of these is written with a % in an address
const [PLOTS, PARTS] = ["*", "_"];

export class Link {
  constructor(view, button, field, note) {
    Object.assign(this, { view, button, field, note });
    button.onclick = () => this.copy();
    field.onfocus = () => field.select();
  }

  address() {
    const { view } = this, { inspector, moments, log } = view;
    const link = new URL(location.href);
    const set = (name, value) => (value == null ? link.searchParams.delete(name) : link.searchParams.set(name, value));
    const colour = view.find("colour").value;
    set("step", this.step);
    set("sel", inspector.selected);
    set("hole", inspector.place && [inspector.place.lane, inspector.place.slot].join(PARTS));
    set("bin", inspector.bin && [inspector.bin.lane, Math.log2(inspector.bin.low)].join(PARTS));
    set("colour", colour === COLOURS[0] ? null : colour);
    set("pin", moments.held);
    set("whole", moments.whole.value || null);
    set("log", log.details.open ? [log.kind.value, log.verdict.value, log.request.value].join(PARTS) : null);
    set("zoom", ranges(view.plots.zoomed()) || null);
    set("addr", inspector.addresses ? "1" : null);
    themed(link, view.theme);
    return link.href;
  }

  /* Show what the address asks for; `given` is from `linked`. */
  open(given) {
    const { inspector, moments, log, find } = this.view;
    if (COLOURS.includes(given.colour)) find("colour").value = given.colour;
    inspector.addresses = given.addresses;
    if (given.hole) inspector.hole(...given.hole);
    else if (given.bin && given.bin[1] < 48) inspector.bar(...given.bin);
    else if (given.sel !== null) inspector.select(given.sel);
    if (given.log) {
      [log.kind.value, log.verdict.value, log.request.value] = given.log;
      for (const choice of [log.kind, log.verdict]) if (choice.selectedIndex < 0) choice.value = "";
      log.details.open = true;
    }
    if (this.view.lanes.includes(given.whole)) moments.whole.value = given.whole;
    if (given.pin !== null || moments.whole.value) moments.hold(given.pin);
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

/* What the address of this page asks for beside the settings; what makes no sense is left out. */
export function linked(address = location.href) {
  const given = new URL(address).searchParams;
  const number = (text) => (NUMBER.test(text || "") ? Number(text) : null);
  const of = (name) => number(given.get(name));
  const place = (name) => {
    const [lane, value] = (given.get(name) || "").split(PARTS);
    return number(value) === null ? null : [lane, number(value)];
  };
  const log = given.has("log") ? given.get("log").split(PARTS) : null;
  return { step: of("step"), sel: of("sel"), hole: place("hole"), bin: place("bin"), pin: of("pin"),
    colour: given.get("colour"), whole: given.get("whole"), zoom: rangesIn(given.get("zoom") || ""),
    log: log && [log[0], log[1] || "", number(log[2]) === null ? "" : log[2]], addresses: given.get("addr") === "1" };
}

/* {plot: [[left, right], [bottom, top]]} as plot_left_right_bottom_top*plot_... */
function ranges(zoomed) {
  return Object.entries(zoomed).map(([name, axes]) =>
    [name, ...axes.flat().map((value) => String(Number(value.toPrecision(7))))].join(PARTS)).join(PLOTS);
}

function rangesIn(text) {
  const found = {};
  for (const part of text.split(PLOTS)) {
    const [name, ...values] = part.split(PARTS);
    const [left, right, bottom, top] = values.map(Number);
    if (values.length === 4 && [left, right, bottom, top].every(Number.isFinite) && left !== right && bottom !== top) {
      found[name] = [[left, right], [bottom, top]];
    }
  }
  return found;
}

function themed(link, theme) {
  const others = link.searchParams.getAll("embed_options").filter((option) => !THEME.test(option));
  link.searchParams.delete("embed_options");
  for (const option of [...others, `${theme}_theme`]) link.searchParams.append("embed_options", option);
}
