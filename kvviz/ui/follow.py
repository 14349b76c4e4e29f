"""Has the page drawn anew when its theme changes: Streamlit recolours its own parts only, and the
figures would stay as they were drawn."""

from __future__ import annotations

import streamlit as st

# It waits for a script that is under way, for a new run would end that one
_WATCHER = """
const page = () => document.querySelector("[data-testid=stApp]");
const ground = () => getComputedStyle(page()).backgroundColor;

export default function ({ parentElement, setTriggerValue }) {
  if (parentElement.kvStop) return parentElement.kvStop;
  let drawn = ground();
  const watch = setInterval(() => {
    const now = ground();
    if (now === drawn || page().dataset.testScriptState === "running") return;
    drawn = now;
    setTriggerValue("theme", now);
  }, 300);
  parentElement.kvStop = () => {
    clearInterval(watch);
    parentElement.kvStop = null;
  };
  return parentElement.kvStop;
}
"""


def follow_theme() -> None:
    watcher = st.components.v2.component("kvviz_follow", js=_WATCHER, html="<span></span>")
    watcher(key="follow-theme", on_theme_change=lambda: None)
