/* The steps that are kept, as a recording: a file, and the recording page open at this step. */

export class Keep {
  constructor(view, bar, node) {
    Object.assign(this, { view, node });
    const button = document.createElement("button");
    button.textContent = "Save recording";
    button.title = "Save the steps that are kept as a recording that opens at the step shown";
    button.onclick = () => this.save();
    bar.append(button);
  }

  async save() {
    const { view, step } = this, n = (value) => value.toLocaleString("en");
    if (this.busy) return;
    this.busy = true;
    this.node.textContent = "Making the recording…";
    try {
      const answer = await fetch(`${view.base}kvviz/keep/${view.token}?step=${step}`, { method: "POST" });
      if (!answer.ok) throw new Error(await answer.text());
      const kept = await answer.json();
      this.node.replaceChildren(
        `Steps ${n(kept.first)} to ${n(kept.last)}, ${n(Math.ceil(kept.bytes / 1024))} KiB: `,
        link(`Open at step ${n(step)}`, `${view.base}recording?kept=${kept.id}&step=${step}`, { target: "_blank" }),
        link("Download", `${view.base}kvviz/kept/${kept.id}.kvviz`, { download: "" }));
      view.probe.kept = kept.id;
    } catch (error) {
      this.node.textContent = `No recording was made. ${error.message}`;
    }
    this.busy = false;
  }

  show(frame) {
    if (this.step !== frame.step && frame.state === "running") this.node.replaceChildren();
    this.step = frame.step;
  }
}

function link(words, address, more) {
  const node = document.createElement("a");
  Object.assign(node, { textContent: words, href: address }, more);
  return node;
}
