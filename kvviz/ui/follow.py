"""Has the page drawn anew when its theme changes: Streamlit recolours its own parts only, and the
figures would stay as they were drawn."""

from __future__ import annotations

import streamlit as st

# It waits for a script that is under way, for a new run would end that one; and asks once, for a
# server that does not know of the theme would draw the same again
_WATCHER = """
const page = () => document.querySelector("[data-testid=stApp]");

function shade() {
  const [r, g, b] = (getComputedStyle(page()).backgroundColor.match(/[\\d.]+/g) || []).map(Number);
  return 0.3 * r + 0.59 * g + 0.11 * b < 128 ? "dark" : "light";
}

export default function ({ data, parentElement, setTriggerValue }) {
  parentElement.kvDrawn = data.theme;
  if (parentElement.kvStop) return parentElement.kvStop;
  let asked = null;
  const watch = setInterval(() => {
    const now = shade();
    if (now === parentElement.kvDrawn) { asked = null; return; }
    if (now === asked || page().dataset.testScriptState === "running") return;
    asked = now;
    setTriggerValue("theme", now);
  }, 300);
  parentElement.kvStop = () => {
    clearInterval(watch);
    parentElement.kvStop = null;
  };
  return parentElement.kvStop;
}
"""


def follow_theme(drawn: str) -> None:
    """Ask for a run of the script where the page is not in the theme that this run draws in:
    "light" or "dark"."""
    watcher = st.components.v2.component("kvviz_follow", js=_WATCHER, html="<span></span>")
    watcher(key="follow-theme", data={"theme": drawn}, on_theme_change=lambda: None)
