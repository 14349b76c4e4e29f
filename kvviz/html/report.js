/* The report's slider. Figures come in light colours, packed in the page; dark ones are the same
   with other colours, for a map in its picture's palette. Text goes in as textContent only. */
(async () => {
  "use strict";
  const find = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const probe = window.__kvviz_report = { drawn: 0, step: -1, dark: false };
  const data = JSON.parse(await inflate(find("payload").textContent));
  const palette = bytesOf(data.palette);
  const pictures = {};
  let drawing = Promise.resolve();
  let wanted = data.first;

  const slider = find("slider");
  slider.addEventListener("input", () => { wanted = Number(slider.value); show(); });
  dark.addEventListener("change", show);
  show();

  /* One drawing at a time; steps that were passed in the meantime are left out. */
  function show() {
    text(data.steps[wanted]);
    drawing = drawing.then(() => draw(wanted));
  }

  function text(step) {
    put(find("step"), step.step.toLocaleString("en"));
    put(document.querySelector(".at"), step.step.toLocaleString("en"));
    const verdict = find("verdict");
    verdict.dataset.tone = step.verdict.tone;
    put(verdict.children[0], step.verdict.text);
    put(verdict.children[1], step.verdict.detail);
    for (const card of document.querySelectorAll("[data-lane]")) {
      const boxes = card.querySelector(".figures").children;
      step.figures[card.dataset.lane].forEach((number, i) => {
        put(boxes[i].children[0], number.value);
        boxes[i].title = `${number.formula}\n${number.note}`;
      });
    }
    for (const row of document.querySelectorAll("tr[data-at]")) {
      const [group, name, lane] = row.dataset.at.split("\t");
      const number = ((step.numbers[group] || {})[name] || {})[lane];
      if (!number) continue;
      row.dataset.kind = number.kind;
      const [note, formula, value] = [...row.children].reverse();
      put(value, number.value);
      put(formula, number.formula);
      put(note, number.note ? `${number.source}. ${number.note}` : number.source);
    }
  }

  async function draw(at) {
    if (at !== wanted || (probe.step === at && probe.dark === dark.matches)) return;
    const step = data.steps[at];
    for (const [name, { figure, png }] of Object.entries(step.maps)) {
      const node = find(`map-${name}`);
      node.setAttribute("aria-label", step.alt[name]);
      const old = pictures[name];
      pictures[name] = URL.createObjectURL(new Blob([picture(png)], { type: "image/png" }));
      const [image] = figure.layout.images;
      await react(node, { ...figure, layout: { ...figure.layout,
        images: [{ ...image, source: pictures[name] }] } });
      if (old) URL.revokeObjectURL(old);
    }
    await react(find("chart-time"), withMark(data.time, step.step));
    for (const [name, figure] of Object.entries(step.charts)) {
      await react(find(`chart-${name}`), figure);
    }
    probe.drawn += 1; probe.step = at; probe.dark = dark.matches;
  }

  function react(node, figure) {
    const { data: traces, layout } = coloured(structuredClone(figure));
    layout.autosize = true;
    return window.Plotly.react(node, traces, layout, {
      displaylogo: false, responsive: true, displayModeBar: innerWidth < 700 ? false : "hover",
      modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
      toImageButtonOptions: { format: "png", scale: 2, filename: `kvviz-${node.id}-step${data.steps[wanted].step}` },
    });
  }

  function withMark(figure, step) {
    const line = { type: "line", xref: "x", yref: "paper", x0: step, x1: step, y0: 0, y1: 1,
      line: { width: 1, color: figure.layout.font.color } };
    return { ...figure, layout: { ...figure.layout, shapes: [...(figure.layout.shapes || []), line] } };
  }

  function coloured(value) {
    if (!dark.matches) return value;
    if (typeof value === "string") {
      if (data.dark[value]) return data.dark[value];
      const comma = value.startsWith("rgba(") ? value.lastIndexOf(",") + 1 : 0;
      const start = data.dark[value.slice(0, comma)];
      return start ? start + value.slice(comma) : value;
    }
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      for (const key of Object.keys(value)) value[key] = coloured(value[key]);
    }
    return value;
  }

  /* A PNG's bytes, in dark with the other palette: a chunk is length, name, content, CRC. */
  function picture(base64) {
    const bytes = bytesOf(base64);
    if (!dark.matches) return bytes;
    const view = new DataView(bytes.buffer);
    for (let at = 8; at + 12 <= bytes.length; at += 12 + view.getUint32(at)) {
      if (String.fromCharCode(...bytes.subarray(at + 4, at + 8)) !== "PLTE") continue;
      const length = view.getUint32(at);
      bytes.set(palette.subarray(0, length), at + 8);
      view.setUint32(at + 8 + length, crc(bytes.subarray(at + 4, at + 8 + length)));
      break;
    }
    return bytes;
  }

  function crc(bytes) {
    let c = ~0;
    for (const byte of bytes) {
      c ^= byte;
      for (let k = 0; k < 8; k += 1) c = (c >>> 1) ^ (c & 1 ? 0xedb88320 : 0);
    }
    return ~c >>> 0;
  }

  function bytesOf(base64) { return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)); }

  function put(node, words) { if (node.textContent !== words) node.textContent = words; }

  async function inflate(base64) {
    const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }
})();
