/* A map's picture and its marks, painted under the plot. */

/* A map's picture is decoded here and painted on one canvas under the plot. As an image of the
   layout, every picture would stay in the browser's memory cache for minutes: 20 MB a minute. */
export async function takePicture(node, figure) {
  const image = figure.layout.images[0];
  figure.layout.images = [];
  const bytes = Uint8Array.from(atob(image.source.split(",")[1]), (c) => c.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  if (node.kvBitmap) node.kvBitmap.close();
  Object.assign(node, { kvImage: image, kvBitmap: bitmap });
  if (node.kvCanvas) return;
  node.kvCanvas = document.createElement("canvas");
  node.kvCanvas.className = "kv-picture";
  node.prepend(node.kvCanvas);
}

export function paint(node) {
  const { kvBitmap: bitmap, kvCanvas: canvas, kvImage: image } = node;
  const x = node._fullLayout.xaxis, y = node._fullLayout.yaxis;
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(x._length * ratio), height = Math.round(y._length * ratio);
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  Object.assign(canvas.style, { left: `${x._offset}px`, top: `${y._offset}px`,
    width: `${x._length}px`, height: `${y._length}px` });
  const across = bitmap.width / image.sizex, down = bitmap.height / image.sizey, from = image.x;
  const [left, right] = x.range, [bottom, top] = y.range;
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  pen.imageSmoothingEnabled = (right - left) * across > width;
  pen.imageSmoothingQuality = "high";
  const draw = () => pen.drawImage(bitmap, (left - from) * across, top * down, (right - left) * across,
    (bottom - top) * down, 0, 0, width, height);
  draw();
  if (!node.kvMarks) return;
  pen.save();
  pen.fillStyle = getComputedStyle(node).getPropertyValue("--kv-card");
  pen.globalAlpha = 0.82;
  pen.fillRect(0, 0, width, height);
  pen.globalAlpha = 1;
  pen.beginPath();
  const wide = width / (right - left), high = height / (bottom - top);
  for (const [column, row, columns, rows] of node.kvMarks.flatMap((run) => boxes(run, node.kvColumns))) {
    pen.rect((column - left) * wide, (row - top) * high, columns * wide, rows * high);
  }
  pen.clip();
  draw();
  pen.restore();
}

/* A run of slots on a wrapped strip: [column, row, columns, rows] of at most three boxes. */
function boxes([start, size], columns) {
  const found = [];
  let at = start, left = size;
  while (left > 0) {
    const column = at % columns, row = Math.floor(at / columns);
    const whole = column === 0 ? Math.floor(left / columns) : 0;
    const taken = whole ? whole * columns : Math.min(left, columns - column);
    found.push([column, row, whole ? columns : taken, whole || 1]);
    at += taken;
    left -= taken;
  }
  return found;
}
