/* Rows of text that keep their nodes: what did not change is not touched. Text goes in as
   textContent only. */

export function key(rows) {
  return rows.map(([kind, colour, label, sign]) =>
    `<i data-kind="${kind}" style="--c: var(--kv-c-${colour})"${sign ? ` data-sign="${sign}"` : ""}>${label}</i>`).join("");
}

export function keys(node, rows) {
  keep(node, rows.length, () => document.createElement("i"));
  rows.forEach(([kind, colour, label], i) => {
    const item = node.children[i];
    put(item, label);
    if (item.dataset.kind !== kind) item.dataset.kind = kind;
    item.style.setProperty("--c", `var(--kv-c-${colour})`);
  });
}

export function chips(node, rows) {
  keep(node, rows.length, () => { const s = document.createElement("span"); s.className = "kv-chip"; return s; });
  rows.forEach((row, i) => {
    const chip = node.children[i];
    put(chip, row.label);
    if (chip.dataset.tone !== row.tone) chip.dataset.tone = row.tone;
    if (chip.title !== row.help) chip.title = row.help;
  });
}

export function row(part, at, names, fill, tag) {
  const line = part.children[at];
  keep(line, names.length, (i) => {
    const cell = document.createElement(i ? tag : "th");
    if (tag === "td" && !i) cell.scope = "row"; else if (tag === "th") cell.scope = "col";
    return cell;
  });
  names.forEach((name, i) => fill(line.children[i], name, i));
}

export function explanation(number, lane) {
  const lines = [`${number.name}, ${lane}: ${number.value}`, number.formula];
  if (number.numerator) lines.push(`numerator: ${number.numerator}`);
  if (number.denominator) lines.push(`denominator: ${number.denominator}`);
  if (number.note) lines.push(number.note);
  lines.push(`source: ${number.source}`);
  return lines.join("\n");
}

export function keep(node, count, make) {
  while (node.children.length < count) node.append(make(node.children.length));
  while (node.children.length > count) node.lastChild.remove();
}

export function put(node, text) { if (node.textContent !== text) node.textContent = text; }
