/* Pictures of the live view, made in the viewer's browser: one of everything, or one of a figure.

   Figures come from Plotly.toImage, maps from their bitmaps, text from where the page has it. All
   that moves is taken at once, before the first wait, so that a picture shows one moment. */

const SCALE = 2;
const HEAD = 40, EDGE = 16;  // px of the page
const SKIP = "button, label, select, .kv-step, .kv-visually-hidden, .kv-note, .kv-numbers, .kv-tip, .kv-plot";

/* Adds the button to the bar of the view. */
export function attach(view) {
  const button = document.createElement("button");
  button.dataset.kv = "picture";
  button.textContent = "Picture";
  button.title = "Download everything shown here as one PNG, twice as large";
  button.onclick = () => busy(button, () => savePicture(view));
  view.find("again").after(button);
}

async function busy(button, work) {
  button.disabled = true;
  const words = button.textContent;
  button.textContent = "…";
  try {
    await work();
  } catch (error) {
    console.warn("kvviz: no picture", error);
    button.title = `The browser could not make the picture: ${error.message}`;
    button.textContent = "No picture";
    await new Promise((done) => setTimeout(done, 1500));
  }
  button.disabled = false;
  button.textContent = words;
}

/* The whole view: title, verdict, status, lanes, charts, stamp. */
export async function savePicture(view) {
  const began = performance.now();
  const root = view.root.getBoundingClientRect();
  const stamp = view.find("stamp").getBoundingClientRect();
  const width = Math.ceil(root.width) + 2 * EDGE;
  const height = Math.ceil(stamp.bottom - root.top) + HEAD + 2 * EDGE;
  const { canvas, pen } = sheet(view, width, height);
  const step = view.probe.step;
  title(view, pen, width, step);
  pen.translate(EDGE - root.left, EDGE + HEAD - root.top);
  for (const part of [".kv-verdict", ".kv-bar", ".kv-lanes", ".kv-charts", ".kv-stamp"]) {
    const node = view.root.querySelector(part);
    if (!node) continue;
    boxes(pen, node);
    words(pen, node);
  }
  const plots = [...view.root.querySelectorAll(".kv-lanes .kv-plot, .kv-charts .kv-plot")]
    .filter((node) => node.data);
  const taken = plots.map((node) => {
    const box = node.getBoundingClientRect();
    bitmap(pen, node, box);
    return { box, figure: { data: node.data, layout: node.layout } };
  });
  for (const { box, figure } of taken) {
    pen.drawImage(await drawn(view, figure, box), box.left, box.top, box.width, box.height);
  }
  await download(canvas, `kvviz-step${step}-${view.theme}.png`);
  view.probe.picture = { ms: performance.now() - began, width: canvas.width, height: canvas.height };
}

/* One figure, with its title and key, and the stamp. */
export async function savePlot(view, name) {
  const node = view.find(name), card = node.closest(".kv-card");
  const box = node.getBoundingClientRect(), area = card.getBoundingClientRect();
  const width = Math.ceil(area.width) + 2 * EDGE;
  const lines = wrapped(view, view.find("stamp").textContent, width - 2 * EDGE);
  const height = Math.ceil(area.height) + 2 * EDGE + lines.length * 14 + 6;
  const { canvas, pen } = sheet(view, width, height);
  const step = view.probe.step;
  pen.font = `11px ${fontOf(view)}`;
  pen.fillStyle = colourOf(view, "--kv-quiet");
  lines.forEach((line, i) => pen.fillText(line, EDGE, EDGE + area.height + 18 + i * 14));
  pen.translate(EDGE - area.left, EDGE - area.top);
  boxes(pen, card);
  words(pen, card);
  bitmap(pen, node, box);
  const image = await drawn(view, { data: node.data, layout: node.layout }, box);
  pen.drawImage(image, box.left, box.top, box.width, box.height);
  await download(canvas, `kvviz-${name}-step${step}.png`);
}

function sheet(view, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width * SCALE;
  canvas.height = height * SCALE;
  const pen = canvas.getContext("2d");
  pen.scale(SCALE, SCALE);
  pen.fillStyle = ground(view);
  pen.fillRect(0, 0, width, height);
  return { canvas, pen };
}

/* What lies behind the view on the page. */
function ground(view) {
  for (let node = view.root; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!clear(colour)) return colour;
  }
  return view.theme === "dark" ? "#0e1117" : "#ffffff";
}

function title(view, pen, width, step) {
  pen.textBaseline = "alphabetic";
  pen.fillStyle = colourOf(view, "--kv-text");
  pen.font = `600 20px ${fontOf(view)}`;
  pen.fillText(`kvviz: ${view.lanes.join(" and ")}, one stream of requests`, EDGE, EDGE + 20);
  pen.font = `14px ${fontOf(view)}`;
  const right = `step ${step.toLocaleString("en")}`;
  pen.fillText(right, width - EDGE - pen.measureText(right).width, EDGE + 20);
}

/* Backgrounds and borders of the node and all in it. */
function boxes(pen, top) {
  for (const node of [top, ...top.querySelectorAll("*")]) {
    if (node.closest(SKIP)) continue;
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    const round = parseFloat(style.borderTopLeftRadius) || 0;
    if (!clear(style.backgroundColor)) {
      pen.fillStyle = style.backgroundColor;
      pen.beginPath();
      pen.roundRect(box.left, box.top, box.width, box.height, round);
      pen.fill();
    }
    const left = parseFloat(style.borderLeftWidth), above = parseFloat(style.borderTopWidth);
    if (left && above && style.borderTopStyle !== "none") {
      pen.strokeStyle = style.borderTopColor;
      pen.lineWidth = above;
      pen.beginPath();
      pen.roundRect(box.left + above / 2, box.top + above / 2, box.width - above,
        box.height - above, round);
      pen.stroke();
    } else if (left && style.borderLeftStyle !== "none") {
      pen.fillStyle = style.borderLeftColor;
      pen.fillRect(box.left, box.top, left, box.height);
    }
    mark(pen, node, box);
  }
}

/* The coloured signs before keys, lane names and checks: pseudo-elements, which have no place of
   their own that a script could ask for. */
function mark(pen, node, box) {
  const style = getComputedStyle(node, "::before");
  if (style.content === "none" || style.content === "normal") return;
  const words = style.content.replace(/^"|"$/g, "");
  const middle = box.top + box.height / 2;
  if (words) {  // a character: ✓, or the sign of a verdict
    pen.font = fontOfStyle(style);
    pen.fillStyle = style.color;
    pen.textBaseline = "middle";
    const pad = parseFloat(getComputedStyle(node).paddingLeft) || 0;
    pen.fillText(words, box.left + pad + 1, middle + 0.5);
    return;
  }
  const colour = node.style.getPropertyValue("--c") ? getComputedStyle(node).getPropertyValue("--c")
    : style.backgroundColor;
  const wide = parseFloat(style.width), kind = node.dataset.kind;
  pen.save();
  pen.strokeStyle = pen.fillStyle = colour.trim();
  if (["line", "dash", "dot"].includes(kind)) {
    pen.lineWidth = 2;
    pen.setLineDash({ line: [], dash: [4, 2], dot: [2, 2] }[kind]);
    stroke(pen, [[box.left, middle], [box.left + wide, middle]]);
  } else if (kind === "ghost") {
    pen.lineWidth = 1.5;
    pen.setLineDash([3, 2]);
    pen.strokeRect(box.left + 1, middle - 4, 8, 8);
  } else {
    const high = parseFloat(style.height) || wide;
    pen.beginPath();
    pen.roundRect(box.left, middle - high / 2, wide, high, 2);
    if (kind === "hatch") {
      pen.lineWidth = 1;
      pen.stroke();
      pen.clip();
      for (let x = -high; x < wide; x += 4) {
        stroke(pen, [[box.left + x, middle + high / 2], [box.left + x + high, middle - high / 2]]);
      }
    } else {
      pen.fill();
    }
  }
  pen.restore();
}

function stroke(pen, points) {
  pen.beginPath();
  points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}

/* Every text of the node, line by line as the page has broken it. */
function words(pen, top) {
  const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  pen.textBaseline = "alphabetic";
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest(SKIP)) continue;
    const style = getComputedStyle(parent);
    if (style.visibility === "hidden") continue;
    pen.font = fontOfStyle(style);
    pen.fillStyle = style.color;
    for (const line of linesOf(node, range)) {
      const size = pen.measureText(line.text);
      const room = line.bottom - line.top - size.fontBoundingBoxAscent - size.fontBoundingBoxDescent;
      pen.fillText(line.text, line.left, line.top + room / 2 + size.fontBoundingBoxAscent);
    }
  }
}

function linesOf(node, range) {
  const lines = [];
  for (const piece of node.data.matchAll(/\S+\s*/g)) {
    range.setStart(node, piece.index);
    range.setEnd(node, piece.index + piece[0].trimEnd().length);
    for (const box of range.getClientRects()) {
      if (!box.width) continue;
      const last = lines[lines.length - 1];
      if (last && Math.abs(last.top - box.top) < 2) { last.text += piece[0]; continue; }
      lines.push({ text: piece[0], left: box.left, top: box.top, bottom: box.bottom });
    }
  }
  return lines;
}

/* A map's cells, as large as the picture is: the canvas on the page has the screen's size. */
function bitmap(pen, node, box) {
  const { kvBitmap: cells, kvImage: image } = node;
  if (!cells) return;
  const x = node._fullLayout.xaxis, y = node._fullLayout.yaxis;
  const across = cells.width / image.sizex, down = cells.height / image.sizey;
  const [left, right] = x.range, [bottom, top] = y.range;
  pen.imageSmoothingEnabled = (right - left) * across > x._length * SCALE;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(cells, left * across, top * down, (right - left) * across, (bottom - top) * down,
    box.left + x._offset, box.top + y._offset, x._length, y._length);
}

async function drawn(view, figure, box) {
  const source = await view.plotly.toImage(figure, { format: "png", scale: SCALE,
    width: Math.round(box.width), height: Math.round(box.height) });
  const image = new Image();
  image.src = source;
  await image.decode();
  return image;
}

function wrapped(view, text, width) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `11px ${fontOf(view)}`;
  const lines = [""];
  for (const piece of text.match(/\S{1,60}\s*/g) || []) {
    const longer = lines[lines.length - 1] + piece;
    if (lines[lines.length - 1] && pen.measureText(longer.trimEnd()).width > width) lines.push(piece);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

async function download(canvas, name) {
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("the picture is too large for this browser");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function clear(colour) { return colour === "transparent" || /,\s*0\)$/.test(colour); }
function fontOf(view) { return getComputedStyle(view.root).fontFamily; }
function fontOfStyle(style) { return `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`; }
function colourOf(view, name) { return getComputedStyle(view.root).getPropertyValue(name).trim(); }
