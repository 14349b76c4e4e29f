/* The figures: drawn in place by Plotly.react, so that zoom and hover survive. A zoomed plot keeps
   its ranges until it is reset (uirevision would drop them as soon as the given range moves on),
   and a hover label that react clears is shown again. */

const here = new URL(import.meta.url).search;
const [{ takePicture, paint }, { slotUnder, columnsOf, ownerOf }, { redraw, Pending, isMap, breath }] =
  await Promise.all(["bitmap.js", "slots.js", "redraw.js"].map((name) => import(`./${name}${here}`)));

const BUTTONS = ["zoom2d", "pan2d", "resetScale2d"];

export class Plots {
  /* zoom: {name: [[left, right], [bottom, top]]}, for the first time that each is drawn. */
  constructor(view, zoom) {
    this.view = view;
    this.zoom = zoom;
    this.nodes = {};
    this.pending = new Pending();
  }

  /* Of a past that is being scrubbed through only what is asked for last is drawn whole. */
  async draw(frame) {
    const { find, probe, scrubber } = this.view, { looking } = frame.past;
    for (const name of this.pending.take(frame)) {
      const map = isMap(name);
      if (!looking) await nextPaint();
      else if (!map) await breath();
      if (looking && !map && scrubber.passed(frame)) return;
      const node = find(name), figure = this.pending.draw(name);
      if (!node || this.view.closed) continue;
      if (node.kvHeld) { node.kvWaiting = figure; continue; }
      await this.react(name, node, figure);
      this.view.root.dataset.drawn = "";
      if (map) probe.maps += 1; else probe.charts += 1;
      if (map) probe.mapped = frame.step;
    }
  }

  async react(name, node, figure) {
    if (figure.layout.images && figure.layout.images.length) await takePicture(node, figure);
    const narrow = this.view.root.clientWidth < 700;
    figure.layout.autosize = true;
    if (node.kvZoom) {
      ["xaxis", "yaxis"].forEach((axis, i) => {
        Object.assign(figure.layout[axis], { range: node.kvZoom[i], autorange: false });
      });
    }
    const { plotly } = this.view;
    await redraw(plotly, node, figure, {
      displaylogo: false, responsive: true, displayModeBar: narrow ? false : "hover",
      modeBarButtons: [[...BUTTONS, this.camera(name)]],
      doubleClick: "reset",
    });
    if (!this.nodes[name]) await this.first(name, node);
    if (name.startsWith("map-")) this.remark(name, node);
    else if (node.kvCanvas) paint(node);
    if (node.kvPoints) plotly.Fx.hover(node, node.kvPoints);
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
        if (figure && !this.view.closed) this.react(name, node, figure);
      }, 50);
    };
    window.addEventListener("pointerup", release, { capture: true, signal: this.view.ended.signal });
    window.addEventListener("pointercancel", release, { capture: true, signal: this.view.ended.signal });
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
    }, { capture: true, signal: this.view.ended.signal });
  }

  /* Saves one figure, with its stamp. */
  camera(name) {
    return {
      name: "save", title: "Download plot as a PNG", icon: this.view.plotly.Icons.camera,
      click: () => this.view.picture.savePlot(this.view, name),
    };
  }

  async first(name, node) {
    this.nodes[name] = node;
    this.holdWhileDragged(name, node);
    if (node.kvCanvas) node.on("plotly_afterplot", () => paint(node));
    node.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((key) => /axis\.(auto)?range/.test(key))) return;
      node.kvZoom = isReset(node) ? null : rangesOf(node);
    });
    node.on("plotly_doubleclick", () => setTimeout(() => { node.kvZoom = null; }, 0));
    if (name.startsWith("map-")) this.mapped(name.slice(4), node);
    else this.charted(name, node);
    const given = this.zoom[name];  // after the first drawing, so that a reset leads to all of it
    if (given) await this.view.plotly.relayout(node, { "xaxis.range": given[0], "yaxis.range": given[1] });
  }

  mapped(lane, node) {
    const { tips } = this.view;
    node.addEventListener("pointermove", (event) => tips.cell(lane, node, event));
    node.addEventListener("pointerleave", () => tips.hideCell());
    this.clicks(node, (event) => this.pick(lane, node, event));
  }

  charted(name, node) {
    if (name === "run") this.clicks(node, (event) => this.view.moments.go(node, event));
    if (name === "holes") {
      node.on("plotly_click", (event) => {
        const bar = event.points[0];
        this.view.inspector.bar(bar.data.name, bar.x);
      });
    }
    node.on("plotly_hover", (event) => {
      node.kvPoints = event.points.map((p) => ({ curveNumber: p.curveNumber, pointNumber: p.pointNumber }));
    });
    node.on("plotly_unhover", () => { node.kvPoints = null; });
  }

  /* A click on a map: the request, the ghost of the waiting one, or the hole under it. */
  pick(lane, node, event) {
    const { inspector } = this.view;
    const hover = this.view.hover[lane], slot = slotUnder(node, event, hover);
    if (slot === null) return;
    const ghost = hover.ghost;
    if (ghost && ghost[1] <= slot && slot < ghost[2]) { inspector.select(ghost[0]); return; }
    const owner = ownerOf(hover, slot);
    if (owner >= 0) inspector.select(owner);
    else if (owner === -1) inspector.hole(lane, slot);
  }

  /* What the inspector has marked, on every map. */
  mark() {
    for (const lane of this.view.lanes) {
      const node = this.nodes[`map-${lane}`];
      if (node && node.kvBitmap) this.remark(`map-${lane}`, node);
    }
  }

  remark(name, node) {
    const lane = name.slice(4), hover = this.view.hover[lane];
    node.kvMarks = hover ? this.view.inspector.marks(lane, hover, columnsOf(hover)) : null;
    node.kvColumns = hover ? hover.columns : 0;
    paint(node);
  }

  /* The ranges of what is zoomed now, as the constructor takes them. */
  zoomed() {
    return Object.fromEntries(Object.entries(this.nodes).filter(([, node]) => node.kvZoom)
      .map(([name, node]) => [name, node.kvZoom]));
  }

  close() {
    for (const node of Object.values(this.nodes)) {
      this.view.plotly.purge(node);
      if (node.kvBitmap) node.kvBitmap.close();
    }
  }
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

function nextPaint() {
  return document.hidden ? Promise.resolve() : new Promise((done) => requestAnimationFrame(done));
}

let plotly = null;
export function loadPlotly(address) {
  plotly = plotly || new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => done(window.Plotly);
    script.onerror = () => { plotly = null; failed(new Error(address)); };
    document.head.append(script);
  });
  return plotly;
}
