/* The page before the first frame: cards, titles, keys, buttons. */

const { key } = await import(`./dom.js${new URL(import.meta.url).search}`);

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

/* The nodes of the view, inside `parent`; parts and parts of parts go by data-kv. */
export function scaffold(parent, lanes, theme) {
  const root = document.createElement("div");
  root.className = "kv";
  root.dataset.theme = theme;
  const lane = (name) => `<section class="kv-card" data-kv="lane-${name}" aria-label="${name} lane">
    <div class="kv-lane-head"><h3 aria-level="2">${name[0].toUpperCase()}${name.slice(1)}</h3><span class="kv-what"></span></div>
    <div class="kv-figures"></div>
    <div class="kv-plot kv-map" data-kv="map-${name}" role="figure"></div>
    <div class="kv-key" data-kv="key-${name}"></div></section>`;
  const chart = ([name, title, alt]) => `<section class="kv-card"><h4 aria-level="2">${title}</h4>
    <div class="kv-key">${key(LANE_KEYS[name] ? LANE_KEYS[name](lanes) : KEYS[name])}</div>
    <div class="kv-plot kv-chart" data-kv="${name}" role="figure" aria-label="${alt}"></div></section>`;
  const table = (at) => `<section class="kv-card"><h4 aria-level="2"></h4>
    <table data-kv="numbers-${at}"><thead><tr></tr></thead><tbody></tbody></table></section>`;
  root.innerHTML = `
    <h1 class="kv-visually-hidden">Live: one stream of requests, ${lanes.length} KV caches</h1>
    <div class="kv-verdict" data-kv="verdict" data-tone="calm">
      <p class="kv-text" data-kv="text">Loading the model and the kernels…</p>
      <p class="kv-detail" data-kv="detail"></p></div>
    <p class="kv-visually-hidden" data-kv="spoken" aria-live="polite"></p>
    <div class="kv-bar" role="toolbar" aria-label="Run">
      <button data-kv="play">Pause</button><button data-kv="one">Step</button>
      <button data-kv="again">Reset</button><span class="kv-step" data-kv="step">step 0</span>
      <span class="kv-state" data-kv="state"></span>
      <label>colour by <select data-kv="colour"><option>request</option><option>state</option>
        <option>age</option></select></label>
      <button data-kv="link" title="A link to this view: step, settings, what is selected, theme">Copy link</button>
      <button data-kv="tensors" hidden title="Make this run again on real tensors, up to this step">Run it on tensors</button>
      <span class="kv-chips" data-kv="chips"></span></div>
    <div class="kv-copied"><input readonly hidden data-kv="address" aria-label="Link to this step">
      <span data-kv="copied" role="status"></span></div>
    <div class="kv-copied" data-kv="saved" role="status"></div>
    <div class="kv-past" data-kv="past" role="group" aria-label="Past steps"></div>
    <div class="kv-note" data-kv="note" role="alert"><span data-kv="said"></span>
      <button data-kv="act" hidden></button></div>
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
