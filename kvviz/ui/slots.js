/* What lies under the pointer: a frame's columns of a lane (see `hover` in frames.py), by slot. */

export function slotUnder(node, event, hover) {
  const layout = node._fullLayout;
  if (!layout || !hover) return null;
  const box = node.getBoundingClientRect(), x = layout.xaxis, y = layout.yaxis;
  const column = Math.floor(x.p2d(event.clientX - box.left - x._offset));
  const row = Math.floor(y.p2d(event.clientY - box.top - y._offset));
  if (!(column >= 0 && column < hover.columns && row >= 0)) return null;
  const slot = row * hover.columns + column;
  columnsOf(hover);
  const last = hover.rows.start.length - 1;
  return slot < hover.rows.start[last] + hover.rows.size[last] ? slot : null;
}

export function columnsOf(hover) {
  if (hover.rows) return hover.rows;
  const [size, used, owner] = ["size", "used", "owner"].map((name) => numbers(hover[name]));
  const start = new Int32Array(size.length);
  for (let i = 1; i < start.length; i++) start[i] = start[i - 1] + size[i - 1];
  return (hover.rows = { start, size, used, owner });
}

/* A column comes as four planes of bytes, the lowest first (see packed.py). */
function numbers(text) {
  const bytes = atob(text), n = bytes.length / 4, found = new Int32Array(n);
  for (let i = 0; i < n; i++) {
    for (let plane = 0; plane < 4; plane++) found[i] |= bytes.charCodeAt(plane * n + i) << (8 * plane);
  }
  return found;
}

function rowOf(start, slot) {
  let low = 0, high = start.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (start[middle] <= slot) low = middle; else high = middle - 1;
  }
  return low;
}

export function ownerOf(hover, slot) {
  const { start, owner } = columnsOf(hover);
  return owner[rowOf(start, slot)];
}

export function describe(hover, slot) {
  const { start, size, used, owner } = columnsOf(hover);
  const low = rowOf(start, slot);
  const n = (value) => value.toLocaleString("en");
  // A row of a paged pool may be a run of blocks that are all full or all free
  const block = Math.floor(slot / hover.grain);
  const begin = hover.paged ? block * hover.grain : start[low];
  const length = hover.paged ? Math.min(hover.grain, start[low] + size[low] - begin) : size[low];
  const filled = used[low] === size[low] ? length : used[low];
  const where = `slots ${n(begin)} to ${n(begin + length - 1)}`;
  if (owner[low] === -2) return `never handed out\n${where}`;
  if (owner[low] < 0) {
    return hover.paged ? `free block ${n(block)}\n${where}` : `hole of ${n(length)}\n${where}`;
  }
  const facts = hover.requests[owner[low]];
  const unit = hover.paged ? `block ${n(block)}: ` : "";
  const head = `request ${n(owner[low])}\n${unit}${where}\n${n(filled)} written of ${n(length)}`;
  if (!facts) return head;
  const [prompt, written, held, life, since] = facts;
  return `${head}\nin all ${n(written)} of ${n(life)} tokens (prompt ${n(prompt)}), holds ${n(held)}\nsince step ${n(since + 1)}`;
}
