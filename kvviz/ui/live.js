/* The live view: one component that keeps its DOM, and one WebSocket.

   A frame is zlib-compressed JSON (kvviz/ui/frames.py). The next one is asked for after this one
   was drawn. Each part of the view is a file of its own, with a `show(frame)`. */

// They carry the version that this file was asked for with: a browser may keep them for ever.
const here = new URL(import.meta.url).search;
const [{ scaffold }, { Status }, { Words }, { Tips }, { Plots, loadPlotly }, { Scrubber }, { Inspector },
  { EventLog }, { Link, linked }, { Moments }, { RunCursor }, { Keep }] = await Promise.all(["scaffold.js", "status.js",
  "words.js", "tips.js", "plots.js", "scrub.js", "inspector.js", "log.js", "link.js", "moments.js", "cursor.js", "keep.js"]
  .map((name) => import(`./${name}${here}`)));

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
    this.terms = data.terms || {};
    this.hover = {};
    this.probe = { frames: 0, bytes: 0, step: 0, state: "", ms: [], maps: 0, charts: 0 };
    this.theme = pageTheme();
    this.root = scaffold(parent, data.lanes, this.theme);
    this.find = (name) => this.root.querySelector(`[data-kv="${name}"]`);
    this.closed = false;
    this.ended = new AbortController();
    const given = linked();
    this.status = new Status(this);
    this.tips = new Tips(this);
    this.plots = new Plots(this, given.zoom);
    this.scrubber = new Scrubber(this, this.find("past"));
    this.inspector = new Inspector(this, this.find("inspect"));
    this.log = new EventLog(this, this.find("log"));
    this.link = new Link(this, this.find("link"), this.find("address"), this.find("copied"));
    this.moments = new Moments(this, this.find("moments"));
    this.parts = [new Words(this), this.tips, this.scrubber, this.inspector, this.log, this.link, this.moments,
      new Keep(this, this.find("past"), this.find("saved"))];
    this.cursor = new RunCursor(this);
    this.link.open(given);
    this.listen();
    this.start();
  }

  async start() {
    try {
      this.picture = await import(`${this.base}kvviz/assets/picture.js?v=${this.version}`);
      this.plotly = await loadPlotly(`${this.base}kvviz/assets/plotly.js?v=${this.version}`);
    } catch (error) {
      this.status.unloaded();
      return;
    }
    if (this.closed) return;
    this.picture.attach(this);
    this.connect();
  }

  connect() {
    if (this.closed) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${this.base}kvviz/live/${this.token}`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.status.connected();
      this.send({ theme: this.theme, colour: this.find("colour").value,
                  visible: !document.hidden, ready: true });
      this.inspector.again();
      this.status.resume();
      this.log.ask();
      this.moments.ask();
    };
    socket.onmessage = (message) => this.receive(message.data);
    socket.onclose = (event) => { if (!this.closed && socket === this.socket) this.status.lost(event.code); };
  }

  send(words) {
    if (this.socket && this.socket.readyState === 1) this.socket.send(JSON.stringify(words));
  }

  async receive(buffer) {
    const began = performance.now();
    const frame = JSON.parse(await inflate(buffer));
    if (this.closed) return;
    this.status.show(frame);
    Object.assign(this.hover, frame.hover);
    for (const part of this.parts) part.show(frame);
    await this.plots.draw(frame);
    this.cursor.show(frame);
    const p = this.probe;
    p.frames += 1; p.bytes += buffer.byteLength; p.step = frame.step; p.state = frame.state;
    p.looking = frame.past.looking;
    p.ms.push(performance.now() - began);
    if (p.ms.length > 500) p.ms.shift();
    this.send({ ready: true });
  }

  /* Stop, and show this step. */
  jump(step) {
    if (this.status.playing) this.send({ do: "pause" });
    this.scrubber.go(step);
  }

  mark() { this.plots.mark(); }

  listen() {
    this.find("play").onclick = () => this.send({ do: this.status.playing ? "pause" : "play" });
    this.find("one").onclick = () => this.send({ do: "step" });
    this.find("again").onclick = () => this.send({ do: "reset" });
    this.find("tensors").onclick = () => this.send({ do: "tensors" });
    this.find("colour").onchange = (event) => this.send({ colour: event.target.value });
    document.addEventListener("visibilitychange", () => this.send({ visible: !document.hidden }),
      { signal: this.ended.signal });
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
    this.status.close();
    if (this.socket) this.socket.close();
    this.plots.close();
    this.root.remove();
  }
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
