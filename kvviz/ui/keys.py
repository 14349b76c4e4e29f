"""The arrow keys as Back and Next, wherever the focus is.

A button's own shortcut is lost once something that uses arrows has the focus, such as the list of
steps after a click on it. Fields, sliders and other choices keep their arrows.
"""

from __future__ import annotations

import streamlit as st

_LISTENER = """
const OWN = "input:not([type=radio]), textarea, select, [contenteditable=true], [role=slider], "
  + "[role=combobox], [role=listbox], [role=menu], [role=grid], .js-plotly-plot";

export default function ({ data, parentElement }) {
  parentElement.kvKeys = data;
  if (parentElement.kvStop) return parentElement.kvStop;
  const listen = (event) => {
    const names = parentElement.kvKeys;
    const name = { ArrowLeft: names.back, ArrowRight: names.next }[event.key];
    if (!name || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const at = event.target instanceof Element ? event.target : document.body;
    const chooses = at.closest("[role=radiogroup]") && !at.closest(`.st-key-${names.places}`);
    if (at.closest(OWN) || chooses) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const button = document.querySelector(`.st-key-${name} button`);
    if (button && !button.disabled) button.click();
  };
  window.addEventListener("keydown", listen, true);
  window.__kvvizKeys = true;
  const stop = () => {
    window.removeEventListener("keydown", listen, true);
    parentElement.kvStop = null;
  };
  parentElement.kvStop = stop;
  return stop;
}
"""


def arrow_keys(*, back: str, next: str, places: str) -> None:
    """Left and right press the buttons with the keys `back` and `next`. `places`: the key of the
    choice of steps, whose own arrows would move the focus only."""
    listener = st.components.v2.component("kvviz_keys", js=_LISTENER, html="<span></span>")
    listener(key="arrow-keys", data={"back": back, "next": next, "places": places})
