/* How it stands with the run and the connection: a word beside the step, a note that says what to
   do, and which buttons are of any use. The root's data-state is what the style goes by. */

const { put } = await import(`./dom.js${new URL(import.meta.url).search}`);

const ENDED = [4404, 4410];  // codes of the live channel: no such run, and its end
const NOTED = 2;  // a connection that comes back at once is not worth a word
const LONGEST_MS = 5000;
const SILENT_MS = 10_000;
const WORDS = { starting: "loading", running: "running", paused: "paused", asleep: "asleep",
  failed: "stopped by an error", closed: "ended", past: "a past step", lost: "not connected", ended: "ended",
  silent: "waiting for the engine" };
const STALE = ["failed", "lost", "ended", "closed", "silent"];

export class Status {
  constructor(view) {
    this.view = view;
    this.tries = 0;
    this.frame = null;
    this.find = view.find;
    this.watch = setInterval(() => this.listen(), 1000);
    this.tell("starting");
    this.buttons(false);
  }

  /* The run is going on, and its newest step is shown. */
  get playing() {
    const { frame } = this;
    return Boolean(frame) && ["running", "starting"].includes(frame.state) && !frame.past.looking;
  }

  show(frame) {
    this.frame = frame;
    this.heard = performance.now();
    const { state } = frame, stands = state === "paused" || state === "asleep" || frame.past.looking;
    put(this.find("play"), stands ? "Play" : "Pause");
    put(this.find("again"), state === "failed" ? "Restart" : "Reset");
    this.tell(frame.past.looking ? "past" : state);
    this.buttons(true);
    if (state !== "failed") { this.note(Object.values(frame.stopped).join(" ")); return; }
    this.note(`${frame.message} The settings in the sidebar can be changed first.`, "Restart the run",
      () => this.view.send({ do: "reset" }));
  }

  connected() {
    this.tries = 0;
    this.note("");
  }

  /* The server does not know what another connection looked at. */
  resume() {
    const { frame } = this;
    if (frame && frame.past.looking) this.view.send({ look: frame.step });
  }

  lost(code) {
    this.buttons(false);
    if (ENDED.includes(code)) {
      this.tell("ended");
      this.note("This run has ended on the server. A new one starts when the page is loaded again.",
        "Reload the page", () => location.reload());
      return;
    }
    this.tries += 1;
    if (this.tries > 1 || this.frame) this.tell("lost");
    if (this.tries > NOTED) {
      const shown = this.frame ? ` What is shown is step ${this.frame.step.toLocaleString("en")}.` : "";
      this.note(`The connection to the engine is lost; trying again.${shown}`, "Try now", () => this.retry(0));
    }
    this.retry(Math.min(LONGEST_MS, 400 * this.tries));
  }

  retry(wait) {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.view.connect(), wait);
  }

  unloaded() {
    this.tell("lost");
    this.note("The browser could not load plotly.js from this server.", "Reload the page", () => location.reload());
  }

  /* A run that goes on has news all the time. */
  listen() {
    if (!this.playing || document.hidden || this.tries || this.state === "ended") this.heard = performance.now();
    else if (performance.now() - this.heard > SILENT_MS) this.tell("silent");
  }

  tell(state) {
    this.state = state;
    const { root } = this.view;
    if (root.dataset.state !== state) root.dataset.state = state;
    root.toggleAttribute("data-stale", STALE.includes(state));
    put(this.find("state"), WORDS[state] || state);
  }

  /* Buttons that the server must hear. */
  buttons(on) {
    const loaded = on && this.frame && Object.keys(this.frame.lanes).length > 0;
    for (const name of ["play", "one", "link"]) this.find(name).disabled = !loaded;
    this.find("again").disabled = this.find("tensors").disabled = this.find("past").inert = !on;
    if (this.frame && this.frame.state === "failed") this.find("play").disabled = this.find("one").disabled = true;
  }

  note(message, action, act) {
    const node = this.find("note"), button = this.find("act");
    put(this.find("said"), message);
    node.toggleAttribute("data-on", Boolean(message));
    button.hidden = !action;
    put(button, action || "");
    button.onclick = act || null;
  }

  close() {
    clearInterval(this.watch);
    clearTimeout(this.later);
  }
}
