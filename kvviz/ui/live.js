/* The live view: one component that keeps its DOM, one WebSocket, every figure by Plotly.react.

   A frame is zlib-compressed JSON (kvviz/ui/frames.py). The next one is asked for after this one
   was drawn. Text goes in as textContent only. Zoom and hover survive: the nodes stay, a zoomed
   plot keeps its ranges until it is reset (uirevision would drop them as soon as the given range
   moves on), and a hover label that react clears is shown again. */

// The parts are files of their own; they carry the version that this file was asked for with.
const [{ Scrubber }, { Inspector }, { EventLog }, { Link, linked }, { Moments }] =
  await Promise.all(["scrub.js", "inspector.js", "log.js", "link.js", "moments.js"].map(part));

function part(name) { return import(`./${name}${new URL(import.meta.url).search}`); }

const CHARTS = [
  ["time", "Free vs admissible, over time", "Free and admissible slots over the last steps, with a mark for every refusal"],
  ["size", "How many requests of size r fit now", "How many requests of each size fit now, by lane"],
  ["holes", "Holes by size", "Number of holes in bins of doubling size, by lane"],
  ["bytes", "Where the bytes are", "Shares of the pool by use, by lane and view"],
];
const KEYS = {
  bytes: [["fill", "written", "token states"], ["fill", "reserved", "reserved, used later"],
          ["hatch", "internal", "internal"], ["hatch", "external", "external"],
          ["fill", "usable", "free, usable"]],
};
// Keys that name the lanes
const LANE_KEYS = {
  time: (lanes) => [...lanes.map((name) => ["line", name, name]), ["dot", "free", "free, dotted"],
                    ["sign", "free", "fragmented", "✕"], ["sign", "free", "capacity", "▼"],
                    ["sign", "free", "queued", "●"]],
  size: (lanes) => [...lanes.map((name) => ["line", name, name]), ["dash", lanes[0], "if compacted"],
                    ["dash", "alarm", "next request"]],
  holes: (lanes) => [...lanes.map((name) => ["fill", name, name]), ["dash", "alarm", "next request"]],
  unusable: (lanes) => [...lanes.map((name) => ["line", name, name]), ["dash", "alarm", "next request"]],
};
const UNUSABLE = ["unusable", "Unusable index, by size of the request",
  "Unusable free space index for each size of request, by lane"];
const BUTTONS = ["zoom2d", "pan2d", "resetScale2d"];
const SPOKEN_MS = 5000;  // the verdict is announced at most this often

export function mount(component) {
  const { data, parentElement } = component;
  const old = parentElement.kvView;
  if (old && old.token === data.token && String(old.lanes) === String(data.lanes)) return;
  if (old) old.close();
  const view = new View(parentElement, data);
  parentElement.kvView = view;
  window.__kvviz = view.probe;
}

export function unmount(parentElement) {
  if (parentElement.kvView) parentElement.kvView.close();
  parentElement.kvView = null;
}

class View {
  constructor(parent, data) {
    this.token = data.token;
    this.base = data.base;
    this.version = data.version;
    this.lanes = data.lanes;
    this.plots = {};
    this.hover = {};
    this.tries = 0;
    this.probe = { frames: 0, bytes: 0, step: 0, state: "", ms: [], maps: 0, charts: 0 };
    this.root = scaffold(parent, data.lanes);
    this.find = (name) => this.root.querySelector(`[data-kv="${name}"]`);
    this.closed = false;
    this.ended = new AbortController();
    this.scrubber = new Scrubber(this, this.find("past"));
    this.inspector = new Inspector(this, this.find("inspect"));
    this.log = new EventLog(this, this.find("log"));
    this.link = new Link(this, this.find("link"), this.find("address"), this.find("copied"));
    this.moments = new Moments(this, this.find("moments"));
    this.parts = [this.scrubber, this.inspector, this.log, this.link, this.moments];
    const { sel, colour } = linked();
    if (["request", "state", "age"].includes(colour)) this.find("colour").value = colour;
    if (sel !== null) this.inspector.select(sel);
    this.listen();
    this.start();
  }

  async start() {
    try {
      this.picture = await import(`${this.base}kvviz/assets/picture.js?v=${this.version}`);
      this.plotly = await loadPlotly(`${this.base}kvviz/assets/plotly.js?v=${this.version}`);
    } catch (error) {
      this.note("The browser could not load plotly.js from this server. Reload the page.");
      return;
    }
    if (this.closed) return;
    this.picture.attach(this);
    this.theme = pageTheme();
    this.root.dataset.theme = this.theme;
    this.connect();
  }

  connect() {
    if (this.closed) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${this.base}kvviz/live/${this.token}`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.tries = 0;
      this.send({ theme: this.theme, colour: this.find("colour").value,
                  visible: !document.hidden, ready: true });
      if (this.inspector.selected != null) this.inspector.select(this.inspector.selected);
      this.log.ask();
      this.moments.ask();
    };
    socket.onmessage = (message) => this.receive(message.data);
    socket.onclose = (event) => this.lost(event.code);
  }

  lost(code) {
    if (this.closed) return;
    this.root.dataset.stale = "";
    if (code === 4404 || code === 4410) {
      this.note("This run has ended on the server. Reload the page to start a new one.");
      return;
    }
    this.tries += 1;
    if (this.tries > 2) this.note("The connection to the engine is lost; trying again…");
    setTimeout(() => this.connect(), Math.min(5000, 400 * this.tries));
  }

  send(words) {
    if (this.socket && this.socket.readyState === 1) this.socket.send(JSON.stringify(words));
  }

  async receive(buffer) {
    const began = performance.now();
    const frame = JSON.parse(await inflate(buffer));
    if (this.closed) return;
    if (frame.state === "failed") this.root.dataset.stale = "";
    else delete this.root.dataset.stale;
    this.text(frame);
    if (frame.numbers) this.tables(frame.numbers, Object.keys(frame.lanes));
    this.refreshTip();
    Object.assign(this.hover, frame.hover);
    for (const part of this.parts) part.show(frame);
    await this.draw(frame);
    const p = this.probe;
    p.frames += 1; p.bytes += buffer.byteLength; p.step = frame.step; p.state = frame.state;
    p.looking = frame.past.looking;
    p.ms.push(performance.now() - began);
    if (p.ms.length > 500) p.ms.shift();
    this.send({ ready: true });
  }

  text(frame) {
    const verdict = this.find("verdict");
    if (frame.verdict) {
      verdict.dataset.tone = frame.verdict.tone;
      put(this.find("text"), frame.verdict.text);
      put(this.find("detail"), frame.verdict.detail);
      this.speak(frame.verdict.text);
    } else {
      put(this.find("text"), frame.state === "failed" ? "The engine could not start."
        : frame.message || "Loading the model and the kernels…");
    }
    put(this.find("step"), `step ${frame.step.toLocaleString("en")}`);
    const running = frame.state === "running" && !frame.past.looking;
    put(this.find("play"), frame.state === "paused" || frame.state === "asleep" ? "Play" : "Pause");
    this.playing = running || frame.state === "starting";
    this.note([frame.state === "failed" ? frame.message : "", ...Object.values(frame.stopped)]
      .filter(Boolean).join(" "));
    this.find("tensors").hidden = !frame.past.replayed;
    put(this.find("again"), frame.state === "failed" ? "Restart" : "Reset");
    chips(this.find("chips"), frame.status);
    put(this.find("stamp"), `${frame.stamp} | ${location.href}`);
    for (const [name, colour] of Object.entries(frame.legend)) {
      this.root.style.setProperty(`--kv-c-${name}`, colour);
    }
    for (const [name, lane] of Object.entries(frame.lanes)) {
      const card = this.find(`lane-${name}`);
      if (!card) continue;  // the lanes have just been changed: the page is told next
      card.style.setProperty("--kv-lane", lane.colour);
      card.toggleAttribute("data-stopped", name in frame.stopped);
      put(card.querySelector(".kv-what"), lane.what);
      keys(this.find(`key-${name}`), lane.key);
      this.figures(card.querySelector(".kv-figures"), lane.figures, name);
      this.find(`map-${name}`).setAttribute("aria-label", lane.alt);
    }
  }

  figures(node, rows, lane) {
    keep(node, rows.length, () => {
      const box = this.explained(document.createElement("div"));
      box.className = "kv-figure";
      box.append(document.createElement("b"), document.createElement("span"));
      return box;
    });
    rows.forEach((row, i) => {
      const box = node.children[i];
      put(box.children[0], row.value);
      put(box.children[1], row.name);
      box.kvTip = explanation(row, lane);
    });
  }

  /* One table a group, a row a number, a column a lane. */
  tables(groups, lanes) {
    Object.entries(groups).forEach(([title, rows], at) => {
      const table = this.find(`numbers-${at}`);
      if (!table) return;
      put(table.previousElementSibling, title);
      const [head, body] = table.children;
      row(head, 0, ["", ...lanes], (cell, name) => put(cell, name), "th");
      keep(body, Object.keys(rows).length, () => document.createElement("tr"));
      Object.entries(rows).forEach(([name, cells], i) => {
        row(body, i, [name, ...lanes], (cell, lane, j) => {
          if (j === 0) { put(cell, name); return; }
          const number = cells[lane];
          this.explained(cell);
          put(cell, number.value);
          if (cell.dataset.kind !== number.kind) cell.dataset.kind = number.kind;
          cell.kvTip = explanation(number, lane);
        }, "td");
      });
    });
  }

  /* Hover, focus and touch open the explanation; Escape closes it. */
  explained(node) {
    if (node.kvExplained) return node;
    node.kvExplained = true;
    node.tabIndex = 0;
    node.setAttribute("aria-describedby", "kv-tip");
    const show = () => { this.explains = node; this.refreshTip(); };
    const hide = () => { if (this.explains === node) { this.explains = null; this.hideTip(); } };
    for (const kind of ["pointerenter", "focus", "click"]) node.addEventListener(kind, show);
    node.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    node.addEventListener("blur", hide);
    node.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
    return node;
  }

  refreshTip() {
    const node = this.explains;
    if (!node || !node.kvTip) return;
    if (!node.isConnected) { this.explains = null; this.hideTip(); return; }
    const tip = this.find("tip");
    put(tip, node.kvTip);
    tip.dataset.wide = "";
    tip.style.display = "block";
    const root = this.root.getBoundingClientRect(), box = node.getBoundingClientRect();
    const below = box.bottom + 6 + tip.offsetHeight <= innerHeight || box.top < tip.offsetHeight + 6;
    tip.style.left = `${Math.max(0, Math.min(box.left - root.left, root.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${below ? box.bottom - root.top + 4 : box.top - root.top - tip.offsetHeight - 4}px`;
  }

  speak(text) {
    const now = performance.now();
    if (this.spoken === text || now - (this.spokeAt || -1e9) < SPOKEN_MS) return;
    this.spoken = text;
    this.spokeAt = now;
    put(this.find("spoken"), text);
  }

  async draw(frame) {
    for (const [name, figure] of Object.entries(frame.figures)) {
      const map = name.startsWith("map-");
      if (!map || !frame.past.looking) await nextPaint();
      const node = this.find(name);
      if (!node || this.closed) continue;
      if (node.kvHeld) { node.kvWaiting = figure; continue; }
      await this.react(name, node, figure);
      if (map) this.probe.maps += 1; else this.probe.charts += 1;
      if (map) this.probe.mapped = frame.step;
    }
  }

  async react(name, node, figure) {
    if (figure.layout.images && figure.layout.images.length) await takePicture(node, figure);
    const narrow = this.root.clientWidth < 700;
    figure.layout.autosize = true;
    if (node.kvZoom) {
      ["xaxis", "yaxis"].forEach((axis, i) => {
        Object.assign(figure.layout[axis], { range: node.kvZoom[i], autorange: false });
      });
    }
    await this.plotly.react(node, figure.data, figure.layout, {
      displaylogo: false, responsive: true, displayModeBar: narrow ? false : "hover",
      modeBarButtons: [[...BUTTONS, this.camera(name)]],
      doubleClick: "reset",
    });
    if (!this.plots[name]) this.first(name, node);
    if (name.startsWith("map-")) this.remark(name, node);
    else if (node.kvCanvas) paint(node);
    if (node.kvPoints) this.plotly.Fx.hover(node, node.kvPoints);
  }

  /* A redraw would cancel a zoom that is being dragged: the newest figure waits for its end. */
  holdWhileDragged(name, node) {
    node.addEventListener("pointerdown", () => { node.kvHeld = true; }, true);
    const release = () => {
      if (!node.kvHeld) return;
      setTimeout(() => {
        node.kvHeld = false;
        const figure = node.kvWaiting;
        node.kvWaiting = null;
        if (figure && !this.closed) this.react(name, node, figure);
      }, 50);
    };
    window.addEventListener("pointerup", release, { capture: true, signal: this.ended.signal });
    window.addEventListener("pointercancel", release, { capture: true, signal: this.ended.signal });
  }

  /* Plotly covers a plot while the button is down: a click is a press and a release in one place. */
  clicks(node, act) {
    let down = null;
    node.addEventListener("pointerdown", (event) => {
      down = event.target.closest(".modebar") ? null : [event.clientX, event.clientY];
    }, true);
    window.addEventListener("pointerup", (event) => {
      const from = down;
      down = null;
      if (from && Math.hypot(event.clientX - from[0], event.clientY - from[1]) < 4) act(event);
    }, { capture: true, signal: this.ended.signal });
  }

  /* Saves one figure, with its stamp. */
  camera(name) {
    return {
      name: "save", title: "Download plot as a PNG", icon: this.plotly.Icons.camera,
      click: () => this.picture.savePlot(this, name),
    };
  }

  first(name, node) {
    this.plots[name] = node;
    this.holdWhileDragged(name, node);
    if (node.kvCanvas) node.on("plotly_afterplot", () => paint(node));
    node.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((key) => /axis\.(auto)?range/.test(key))) return;
      node.kvZoom = isReset(node) ? null : rangesOf(node);
    });
    node.on("plotly_doubleclick", () => setTimeout(() => { node.kvZoom = null; }, 0));
    if (name.startsWith("map-")) {
      node.addEventListener("pointermove", (event) => this.tip(name.slice(4), node, event));
      node.addEventListener("pointerleave", () => this.hideTip());
      this.clicks(node, (event) => this.pick(name.slice(4), node, event));
      return;
    }
    if (name === "run") this.clicks(node, (event) => this.moments.go(node, event));
    if (name === "holes") {
      node.on("plotly_click", (event) => {
        const bar = event.points[0];
        this.inspector.bar(bar.data.name, bar.x);
      });
    }
    node.on("plotly_hover", (event) => {
      node.kvPoints = event.points.map((p) => ({ curveNumber: p.curveNumber, pointNumber: p.pointNumber }));
    });
    node.on("plotly_unhover", () => { node.kvPoints = null; });
  }

  tip(lane, node, event) {
    const slot = slotUnder(node, event, this.hover[lane]);
    const tip = this.find("tip");
    if (slot === null) { this.hideTip(); return; }
    this.explains = null;
    delete tip.dataset.wide;
    put(tip, describe(this.hover[lane], slot));
    tip.style.display = "block";
    const box = this.root.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = `${Math.min(x + 14, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${y + 16}px`;
  }

  /* Stop, and show this step. */
  jump(step) {
    if (this.playing) this.send({ do: "pause" });
    this.scrubber.go(step);
  }

  /* A click on a map: the request, the ghost of the waiting one, or the hole under it. */
  pick(lane, node, event) {
    const hover = this.hover[lane], slot = slotUnder(node, event, hover);
    if (slot === null) return;
    const ghost = hover.ghost;
    if (ghost && ghost[1] <= slot && slot < ghost[2]) { this.inspector.select(ghost[0]); return; }
    const owner = ownerOf(hover, slot);
    if (owner >= 0) this.inspector.select(owner);
    else if (owner === -1) this.inspector.hole(lane, slot);
  }

  mark() {
    for (const lane of this.lanes) {
      const node = this.plots[`map-${lane}`];
      if (node && node.kvBitmap) this.remark(`map-${lane}`, node);
    }
  }

  remark(name, node) {
    const lane = name.slice(4), hover = this.hover[lane];
    node.kvMarks = hover ? this.inspector.marks(lane, hover, columnsOf(hover)) : null;
    node.kvColumns = hover ? hover.columns : 0;
    paint(node);
  }

  hideTip() { this.find("tip").style.display = "none"; }

  note(message) {
    const node = this.find("note");
    put(node, message);
    if (message) node.dataset.on = ""; else delete node.dataset.on;
  }

  listen() {
    this.find("play").onclick = () => this.send({ do: this.playing ? "pause" : "play" });
    this.find("one").onclick = () => this.send({ do: "step" });
    this.find("again").onclick = () => this.send({ do: "reset" });
    this.find("tensors").onclick = () => this.send({ do: "tensors" });
    this.find("colour").onchange = (event) => this.send({ colour: event.target.value });
    this.onVisible = () => this.send({ visible: !document.hidden });
    document.addEventListener("visibilitychange", this.onVisible);
    this.watch = setInterval(() => {
      const theme = pageTheme();
      if (theme === this.theme) return;
      this.theme = theme;
      this.root.dataset.theme = theme;
      this.send({ theme });
    }, 500);
  }

  close() {
    this.closed = true;
    clearInterval(this.watch);
    this.ended.abort();
    document.removeEventListener("visibilitychange", this.onVisible);
    if (this.socket) this.socket.close();
    for (const node of Object.values(this.plots)) {
      this.plotly.purge(node);
      if (node.kvBitmap) node.kvBitmap.close();
    }
    this.root.remove();
  }
}

/* A map's picture is decoded here and painted on one canvas under the plot. As an image of the
   layout, every picture would stay in the browser's memory cache for minutes: 20 MB a minute. */
async function takePicture(node, figure) {
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

function paint(node) {
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

function rangesOf(node) {
  return [node._fullLayout.xaxis.range.slice(), node._fullLayout.yaxis.range.slice()];
}

/* Back at the ranges that the plot was first drawn with: the reset button. */
function isReset(node) {
  return ["xaxis", "yaxis"].every((name) => {
    const axis = node._fullLayout[name];
    return axis.range[0] === axis._rangeInitial0 && axis.range[1] === axis._rangeInitial1;
  });
}

function scaffold(parent, lanes) {
  const root = document.createElement("div");
  root.className = "kv";
  root.dataset.theme = pageTheme();
  const lane = (name) => `<section class="kv-card" data-kv="lane-${name}" aria-label="${name} lane">
    <div class="kv-lane-head"><h3>${name[0].toUpperCase()}${name.slice(1)}</h3><span class="kv-what"></span></div>
    <div class="kv-figures"></div>
    <div class="kv-plot kv-map" data-kv="map-${name}" role="img"></div>
    <div class="kv-key" data-kv="key-${name}"></div></section>`;
  const chart = ([name, title, alt]) => `<section class="kv-card"><h4>${title}</h4>
    <div class="kv-key">${key(LANE_KEYS[name] ? LANE_KEYS[name](lanes) : KEYS[name])}</div>
    <div class="kv-plot kv-chart" data-kv="${name}" role="img" aria-label="${alt}"></div></section>`;
  const table = (at) => `<section class="kv-card"><h4></h4>
    <table data-kv="numbers-${at}"><thead><tr></tr></thead><tbody></tbody></table></section>`;
  root.innerHTML = `
    <div class="kv-verdict" data-kv="verdict" data-tone="calm">
      <p class="kv-text" data-kv="text">Loading the model and the kernels…</p>
      <p class="kv-detail" data-kv="detail"></p></div>
    <p class="kv-visually-hidden" data-kv="spoken" aria-live="polite"></p>
    <div class="kv-bar" role="toolbar" aria-label="Run">
      <button data-kv="play">Pause</button><button data-kv="one">Step</button>
      <button data-kv="again">Reset</button><span class="kv-step" data-kv="step">step 0</span>
      <label>colour by <select data-kv="colour"><option>request</option><option>state</option>
        <option>age</option></select></label>
      <button data-kv="link" title="A link to this step, with these settings">Copy link</button>
      <button data-kv="tensors" hidden title="Make this run again on real tensors, up to this step">Run it on tensors</button>
      <span class="kv-chips" data-kv="chips"></span></div>
    <div class="kv-copied"><input readonly hidden data-kv="address" aria-label="Link to this step">
      <span data-kv="copied" role="status"></span></div>
    <div class="kv-past" data-kv="past" role="group" aria-label="Past steps"></div>
    <p class="kv-note" data-kv="note" role="alert"></p>
    <div class="kv-lanes">${lanes.map(lane).join("")}</div>
    <div class="kv-charts">${CHARTS.map(chart).join("")}</div>
    <p class="kv-stamp" data-kv="stamp"></p>
    <section class="kv-card kv-inspect" data-kv="inspect" aria-label="Inspect"></section>
    <section class="kv-card kv-inspect" data-kv="moments" aria-label="Moments"></section>
    <section class="kv-card kv-log" data-kv="log" aria-label="Events"></section>
    <div class="kv-numbers"><div>${[0, 1, 3].map(table).join("")}</div>
      <div>${table(2)}${chart(UNUSABLE)}</div></div>
    <div class="kv-tip" data-kv="tip" id="kv-tip" role="tooltip"></div>`;
  root.style.position = "relative";
  parent.appendChild(root);
  return root;
}

function key(rows) {
  return rows.map(([kind, colour, label, sign]) =>
    `<i data-kind="${kind}" style="--c: var(--kv-c-${colour})"${sign ? ` data-sign="${sign}"` : ""}>${label}</i>`).join("");
}

function keys(node, rows) {
  keep(node, rows.length, () => document.createElement("i"));
  rows.forEach(([kind, colour, label], i) => {
    const item = node.children[i];
    put(item, label);
    if (item.dataset.kind !== kind) item.dataset.kind = kind;
    item.style.setProperty("--c", `var(--kv-c-${colour})`);
  });
}

function chips(node, rows) {
  keep(node, rows.length, () => { const s = document.createElement("span"); s.className = "kv-chip"; return s; });
  rows.forEach((row, i) => {
    const chip = node.children[i];
    put(chip, row.label);
    if (chip.dataset.tone !== row.tone) chip.dataset.tone = row.tone;
    if (chip.title !== row.help) chip.title = row.help;
  });
}

function row(part, at, names, fill, tag) {
  const line = part.children[at];
  keep(line, names.length, (i) => {
    const cell = document.createElement(i ? tag : "th");
    if (tag === "td" && !i) cell.scope = "row"; else if (tag === "th") cell.scope = "col";
    return cell;
  });
  names.forEach((name, i) => fill(line.children[i], name, i));
}

function explanation(number, lane) {
  const lines = [`${number.name}, ${lane}: ${number.value}`, number.formula];
  if (number.numerator) lines.push(`numerator: ${number.numerator}`);
  if (number.denominator) lines.push(`denominator: ${number.denominator}`);
  if (number.note) lines.push(number.note);
  lines.push(`source: ${number.source}`);
  return lines.join("\n");
}

function keep(node, count, make) {
  while (node.children.length < count) node.append(make(node.children.length));
  while (node.children.length > count) node.lastChild.remove();
}

function put(node, text) { if (node.textContent !== text) node.textContent = text; }

function slotUnder(node, event, hover) {
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

function columnsOf(hover) {
  if (hover.rows) return hover.rows;
  hover.rows = {};
  for (const name of ["start", "size", "used", "owner"]) {
    const bytes = Uint8Array.from(atob(hover[name]), (c) => c.charCodeAt(0));
    hover.rows[name] = new Int32Array(bytes.buffer);
  }
  return hover.rows;
}

function rowOf(start, slot) {
  let low = 0, high = start.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (start[middle] <= slot) low = middle; else high = middle - 1;
  }
  return low;
}

function ownerOf(hover, slot) {
  const { start, owner } = columnsOf(hover);
  return owner[rowOf(start, slot)];
}

function describe(hover, slot) {
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
  return `${head}\nin all ${n(written)} of ${n(life)} tokens (prompt ${n(prompt)}), holds ${n(held)}\nsince step ${n(since)}`;
}

function pageTheme() {
  const page = document.querySelector("[data-testid=stApp]") || document.body;
  const parts = getComputedStyle(page).backgroundColor.match(/[\d.]+/g) || [255, 255, 255];
  return (0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2]) < 128 ? "dark" : "light";
}

async function inflate(buffer) {
  const stream = new Blob([buffer]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

function nextPaint() {
  return document.hidden ? Promise.resolve() : new Promise((done) => requestAnimationFrame(done));
}

let plotly = null;
function loadPlotly(address) {
  plotly = plotly || new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => done(window.Plotly);
    script.onerror = () => { plotly = null; failed(new Error(address)); };
    document.head.append(script);
  });
  return plotly;
}
