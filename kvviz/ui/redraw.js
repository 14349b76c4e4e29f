/* Draws a figure at the least price. Plotly.react sets a plot up anew, 15 ms or more, and most
   frames bring what is there already but for the shapes over it: a map with another picture and
   the ghost elsewhere, the curves of a past step with the cursor moved. Shapes alone cost 1 ms. */
export async function redraw(plotly, node, figure, config) {
  const { shapes = [], ...layout } = figure.layout;
  const plot = JSON.stringify([figure.data, layout, config.displayModeBar]);
  const over = JSON.stringify(shapes);  // before Plotly writes into them
  const drawn = node.kvDrawn || {};
  node.kvDrawn = null;  // a failure in between leaves nothing to build on
  if (drawn.plot !== plot) await plotly.react(node, figure.data, figure.layout, config);
  else if (drawn.over !== over) await plotly.relayout(node, { shapes });
  node.kvDrawn = { plot, over };
}

/* Let the browser take input before the next figure is drawn. */
export function breath() {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); done(); };
    port2.postMessage(0);
  });
}

/* Figures that came and are not drawn yet. */
export class Pending {
  constructor() { this.figures = {}; }

  /* Take a frame's figures: the names to draw now, maps first. A frame without charts is followed
     by one with them, and until then those of another step are left undrawn. */
  take(frame) {
    Object.assign(this.figures, frame.figures);
    const names = Object.keys(this.figures);
    const maps = names.filter(isMap);
    return frame.numbers || !frame.past.looking ? [...maps, ...names.filter((n) => !isMap(n))] : maps;
  }

  draw(name) {
    const figure = this.figures[name];
    delete this.figures[name];
    return figure;
  }
}

export function isMap(name) { return name.startsWith("map-"); }
