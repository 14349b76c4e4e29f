/* One request, or one hole, by name: its life, its slots, its text. And what is drawn of it on the
   maps: the marked cells stay, the rest is dimmed. Text goes in as textContent only. */

const n = (value) => value.toLocaleString("en");
const SVG = "http://www.w3.org/2000/svg";

export class Inspector {
  constructor(view, node) {
    this.view = view;
    node.innerHTML = `<h4 aria-level="2">Inspect</h4>
      <div class="kv-ask"><label>request <input type="number" min="0" data-kv="which"
        aria-label="Request to inspect"></label>
        <button data-kv="forget">Clear</button>
        <button data-kv="finish" disabled title="It ends with its next token, in every lane">Finish it now</button>
        <label>slots <input type="number" min="1" value="1024" data-kv="slots"
          aria-label="Slots of the request to add"></label>
        <button data-kv="add" disabled title="It arrives in every lane at the next step">Add a request</button>
        <span data-kv="queues"></span></div>
      <div class="kv-facts" data-kv="facts" aria-live="polite"></div>`;
    const find = (name) => node.querySelector(`[data-kv="${name}"]`);
    [this.which, this.facts, this.queues] = ["which", "facts", "queues"].map(find);
    this.which.onchange = () => this.select(this.which.value === "" ? null : Number(this.which.value));
    this.finish = find("finish");
    this.add = find("add");
    this.finish.onclick = () => this.view.send({ finish: this.selected });
    this.add.onclick = () => this.view.send({ add: Math.round(Number(find("slots").value)) });
    find("forget").onclick = () => this.clear();
    this.hint();
  }

  hint() {
    this.facts.replaceChildren(el("p", "kv-quiet",
      "Click a request or a hole on a map, a bar of the histogram, or a row of the events."));
  }

  select(request) {
    this.selected = request;
    this.place = this.bin = null;
    this.which.value = request === null ? "" : request;
    this.view.send({ select: request });
    this.view.mark();
    if (request === null) this.hint();
  }

  /* Ask anew, on a new connection. */
  again() {
    if (this.selected != null) this.select(this.selected);
    else if (this.place) this.hole(this.place.lane, this.place.slot);
  }

  clear() {
    this.bin = this.place = null;
    this.select(null);
  }

  hole(lane, slot) {
    this.selected = this.bin = null;
    this.which.value = "";
    this.place = { lane, slot };
    this.view.send({ hole: [lane, slot] });
    this.view.mark();
  }

  bar(lane, bin) {
    this.view.send({ select: null });
    this.selected = this.place = null;
    this.bin = { lane, low: 2 ** bin, high: 2 ** (bin + 1) };
    this.facts.replaceChildren(el("p", "", `${lane}: holes of ${n(this.bin.low)} to ` +
      `${n(this.bin.high - 1)} slots are lit on its map.`));
    this.view.mark();
  }

  /* The marked slots of a lane, [[start, size], ...]; null: nothing is marked anywhere. */
  marks(lane, hover, rows) {
    if (this.selected == null && !this.bin && !this.place) return null;
    const found = [];
    if (this.selected != null) {
      rows.owner.forEach((owner, i) => { if (owner === this.selected) found.push([rows.start[i], rows.size[i]]); });
      const own = this.about && this.about.request === this.selected && this.about.lanes[lane];
      if (own && own.runs) for (const [, slot, size] of own.runs) found.push([slot, size]);
      if (hover.ghost && hover.ghost[0] === this.selected) found.push([hover.ghost[1], hover.ghost[2] - hover.ghost[1]]);
      return found;
    }
    for (const [start, size] of holes(rows, hover.paged)) {
      if (this.place && this.place.lane === lane && start <= this.place.slot && this.place.slot < start + size) {
        found.push([start, size]);
      }
      if (this.bin && this.bin.lane === lane && size >= this.bin.low && size < this.bin.high) found.push([start, size]);
    }
    return found;
  }

  show(frame) {
    this.waiting(frame);
    if (frame.selected && frame.selected.request === this.selected) {
      this.about = frame.selected;
      this.request(frame);
      this.view.mark();
    }
    if (frame.hole !== undefined && this.place) this.emptiness(frame.hole);
    const here = this.about && this.about.request === this.selected && Object.values(this.about.lanes)
      .some((facts) => facts.state === "running" || facts.state === "waiting");
    this.finish.disabled = frame.past.looking || !here;
    this.add.disabled = frame.past.looking || frame.past.last < 0;
  }

  waiting(frame) {
    const rows = Object.entries(frame.hover).filter(([, hover]) => hover.waiting.length);
    const text = JSON.stringify(rows.map(([lane, hover]) => [lane, hover.waiting]));
    if (text === this.queued || !Object.keys(frame.hover).length) return;
    this.queued = text;
    this.queues.replaceChildren(...rows.flatMap(([lane, hover]) => [
      el("span", "kv-quiet", ` waiting in ${lane}: `),
      ...hover.waiting.slice(0, 6).map((request) => this.link(request)),
      ...(hover.waiting.length > 6 ? [el("span", "kv-quiet", " …")] : [])]));
  }

  link(request) {
    const button = el("button", "kv-link", String(request));
    button.setAttribute("aria-label", `Inspect request ${request}`);
    button.onclick = () => this.select(request);
    return button;
  }

  request(frame) {
    const { request, lanes } = this.about;
    const nodes = [];
    for (const [name, facts] of Object.entries(lanes)) {
      const box = el("section", "kv-life");
      box.append(el("h3", "", `Request ${n(request)} in ${name}: ${facts.state}`));
      if (facts.held !== undefined) {
        box.append(el("p", "", `${n(facts.written)} of ${n(facts.life_slots)} tokens written (prompt ` +
          `${n(facts.prompt)}), holds ${n(facts.held)} slots = ${n(facts.held_bytes)} bytes in ` +
          `${n(facts.pieces)} piece${facts.pieces === 1 ? "" : "s"}, since step ${n(facts.since)}` +
          (facts.refs > 1 ? `; blocks shared by up to ${n(facts.refs)}` : "")));
        box.append(places(facts, this.view.hover[name]));
        if (facts.order !== "token") box.append(el("p", "kv-quiet",
          "Drawn in the order of the addresses: its block table of that step is no longer kept."));
        if (facts.tensor) box.append(this.opened(addresses(facts)));
      }
      if (facts.place) box.append(el("p", "", `number ${n(facts.place)} in the queue, needs ${n(facts.need)} slots`));
      const life = el("ol", "kv-events");
      for (const event of facts.life) {
        const item = el("li", "");
        const jump = el("button", "kv-link", `step ${n(event.step)}`);
        jump.onclick = () => this.view.jump(event.step);
        item.append(jump, ` ${event.kind}${event.verdict && event.kind === "refuse" ? ` (${event.verdict})` : ""}` +
          (event.slots ? `, ${n(event.slots)} slots` : "") + (event.text ? `: ${event.text}` : ""));
        life.append(item);
      }
      box.append(life);
      nodes.push(box);
    }
    const [told] = Object.entries(lanes).filter(([, facts]) => facts.prompt_text)
      .sort(([, a], [, b]) => b.answer_text.length - a.answer_text.length);
    if (told) {
      const box = el("section", "kv-said"), [name, facts] = told;
      box.append(el("h3", "", "Prompt"), el("pre", "", facts.prompt_text));
      if (facts.answer_text) box.append(el("h3", "", `Generated so far, in ${name}`), el("pre", "", facts.answer_text));
      nodes.push(box);
    }
    this.facts.replaceChildren(...nodes);
  }

  /* The addresses are made anew with each answer: they stay open, or closed, as they were left. */
  opened(details) {
    details.open = Boolean(this.addresses);
    details.ontoggle = () => { if (details.isConnected) this.addresses = details.open; };
    return details;
  }

  emptiness(hole) {
    if (!hole) { this.facts.replaceChildren(el("p", "", "This place is taken at this step.")); return; }
    const box = el("section", "kv-life");
    box.append(el("h3", "", `${hole.lane}: ${n(hole.size)} free slots from ${n(hole.start)} to ${n(hole.start + hole.size - 1)}`));
    const left = el("p", "", hole.left_by === null
      ? `Slot ${n(hole.slot)} was free at every step since ${n(hole.searched_from)}.`
      : `Slot ${n(hole.slot)} was left at step ${n(hole.left_at)} by request `);
    if (hole.left_by !== null) left.append(this.link(hole.left_by));
    box.append(left, el("p", "", `A request of up to ${n(hole.largest)} slots fits` +
      (hole.largest > hole.size ? " here and in the other free blocks." : " here.")));
    const queue = el("p", "", hole.waiting ? (hole.fits.length ? "Of the queue these fit: " : "Nobody in the queue fits.")
      : "Nobody waits.");
    queue.append(...hole.fits.map((request) => this.link(request)));
    box.append(queue);
    this.facts.replaceChildren(box);
  }
}

/* From the tokens of a request, in order, to where they lie in the pool. */
function places(facts, hover) {
  const svg = document.createElementNS(SVG, "svg");
  const total = facts.runs.reduce((sum, run) => sum + run[2], 0) || 1;
  const rows = hover && hover.rows, last = rows ? rows.start.length - 1 : 0;
  const pool = rows ? rows.start[last] + rows.size[last] : Math.max(1, ...facts.runs.map((r) => r[1] + r[2]));
  svg.setAttribute("viewBox", "0 0 600 74");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Tokens (above, in the order of ${facts.order === "token" ? "the text" : "the addresses"}) ` +
    `and the slots of the pool (below) that hold them: ${facts.runs.length} pieces`);
  const add = (tag, set) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(set)) node.setAttribute(name, value);
    svg.append(node);
    return node;
  };
  add("rect", { x: 0, y: 4, width: 600, height: 10, class: "kv-bar-all" });
  add("rect", { x: 0, y: 60, width: 600, height: 10, class: "kv-bar-all" });
  for (const [token, slot, size] of facts.runs) {
    const a = 600 * token / total, b = 600 * (token + size) / total;
    const c = 600 * slot / pool, d = Math.max(c + 0.8, 600 * (slot + size) / pool);
    add("polygon", { points: `${a},14 ${b},14 ${d},60 ${c},60`, class: "kv-bar-link" });
    add("rect", { x: a, y: 4, width: Math.max(0.5, b - a - 0.4), height: 10, class: "kv-bar-own" });
    add("rect", { x: c, y: 60, width: d - c, height: 10, class: "kv-bar-own" });
  }
  return svg;
}

function addresses(facts) {
  const t = facts.tensor, details = el("details", ""), list = el("ol", "kv-events");
  details.append(el("summary", "", `tensor addresses (${t.dtype} on ${t.device})`));
  details.append(el("p", "kv-quiet", `pool at ${t.base}; a slot is ${n(t.slot_step)} bytes further, V ` +
    `${n(t.value_offset)} behind K, a layer ${n(t.layer_step)} behind the one before`));
  facts.runs.slice(0, 64).forEach(([token, slot, size], i) => list.append(el("li", "",
    (facts.paged ? `block ${n(Math.floor(token / facts.grain))} is block ${n(Math.floor(slot / facts.grain))}: ` : "") +
    `tokens ${n(token)} to ${n(token + size - 1)} in slots ${n(slot)} to ${n(slot + size - 1)}, K of layer 0 at ${t.addresses[i]}`)));
  details.append(list);
  return details;
}

/* Free runs of a lane; in a paged pool free blocks that touch are one. */
function holes(rows, paged) {
  const found = [];
  rows.owner.forEach((owner, i) => {
    if (owner !== -1) return;
    const last = found[found.length - 1];
    if (paged && last && last[0] + last[1] === rows.start[i]) last[1] += rows.size[i];
    else found.push([rows.start[i], rows.size[i]]);
  });
  return found;
}

function el(tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
}
