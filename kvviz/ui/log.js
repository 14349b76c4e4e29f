/* The events of all lanes: filtered by the server, a row leads to its moment. */

const KINDS = ["", "arrive", "admit", "refuse", "drop", "share", "fork", "copy", "move", "preempt",
  "swap_out", "swap_in", "finish", "change"];
const VERDICTS = ["", "fragmented", "capacity", "queued", "never"];
const HEAD = ["step", "lane", "event", "request", "verdict", "slots", "cause"];

export class EventLog {
  constructor(view, node) {
    this.view = view;
    const options = (values) => values.map((v) => `<option value="${v}">${v || "all"}</option>`).join("");
    node.innerHTML = `<details><summary><h4 aria-level="2">Events</h4></summary>
      <div class="kv-ask"><label>event <select data-kv="log-kind">${options(KINDS)}</select></label>
        <label>verdict <select data-kv="log-verdict">${options(VERDICTS)}</select></label>
        <label>request <input type="number" min="0" data-kv="log-request"></label>
        <span class="kv-quiet" data-kv="log-count"></span>
        <span class="kv-files">download ${["csv", "jsonl", "parquet"].map((kind) =>
          `<a download href="${view.base}kvviz/events/${view.token}.${kind}">${kind}</a>`).join(" ")}
          <a download hidden data-kv="log-memory" href="${view.base}kvviz/memory/${view.token}.pickle"
            title="torch's own record, for pytorch.org/memory_viz">memory snapshot</a></span></div>
      <div class="kv-rows"><table><thead><tr>${HEAD.map((h) => `<th scope="col">${h}</th>`).join("")}</tr></thead>
        <tbody data-kv="log-rows"></tbody></table></div></details>`;
    const find = (name) => node.querySelector(`[data-kv="log-${name}"]`);
    [this.kind, this.verdict, this.request, this.count, this.rows, this.memory] =
      ["kind", "verdict", "request", "count", "rows", "memory"].map(find);
    this.details = node.querySelector("details");
    this.details.addEventListener("toggle", () => this.ask());
    for (const control of [this.kind, this.verdict, this.request]) control.onchange = () => this.ask();
  }

  ask() {
    this.view.send({ log: !this.details.open ? null : { kind: this.kind.value, verdict: this.verdict.value,
      request: this.request.value === "" ? null : Number(this.request.value) } });
  }

  show(frame) {
    this.memory.hidden = !frame.snapshots_memory;
    if (!frame.log || !this.details.open) return;
    const { rows, total, first } = frame.log;
    const n = (value) => value.toLocaleString("en");
    this.count.textContent = `${n(rows.length)} of ${n(total)}, newest first` +
      (first ? `; those before step ${n(first)} are no longer kept` : "");
    const text = JSON.stringify(rows);
    if (text !== this.last) { this.last = text; this.fill(rows, n); }
    for (const row of this.rows.children) {
      const own = row.kvRequest === this.view.inspector.selected && row.kvRequest >= 0;
      if (own !== row.hasAttribute("data-own")) row.toggleAttribute("data-own", own);
    }
  }

  fill(rows, n) {
    const held = this.rows.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    this.rows.replaceChildren(...rows.map(([step, lane, kind, request, verdict, slots, cause]) => {
      const line = document.createElement("tr");
      line.kvRequest = request;
      const jump = document.createElement("button");
      jump.className = "kv-link";
      jump.textContent = n(step);
      jump.dataset.at = `${step} ${lane} ${kind} ${request}`;
      jump.setAttribute("aria-label", `Go to step ${step}: ${kind} of request ${request} in ${lane}`);
      line.onclick = () => { if (request >= 0) this.view.inspector.select(request); this.view.jump(step); };
      const cells = [jump, lane, kind, request < 0 ? "" : String(request), verdict, slots ? n(slots) : "", cause];
      line.append(...cells.map((content) => {
        const cell = document.createElement("td");
        cell.append(content);
        return cell;
      }));
      return line;
    }));
    if (held) { const again = [...this.rows.querySelectorAll("button")].find((b) => b.dataset.at === held); if (again) again.focus(); }
  }
}
