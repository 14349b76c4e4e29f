"""Mounts the live view: a small component that loads `live.js` and keeps its DOM."""

from __future__ import annotations

import streamlit as st

from kvviz.lesson.terms import ANCHORS
from kvviz.live.runner import LiveRunner
from kvviz.ui.server import asset_version, base_path

# Only this loader travels with a script run; the rest is fetched once and cached.
_LOADER = """
export default function (component) {
  const { data, parentElement } = component;
  const at = (name) => `${location.origin}${data.base}kvviz/assets/${name}?v=${data.version}`;
  if (!document.querySelector('link[data-kvviz]')) {
    const style = document.createElement('link');
    style.rel = 'stylesheet'; style.href = at('live.css'); style.dataset.kvviz = '';
    document.head.append(style);
  }
  let gone = false;
  const module = import(at('live.js'));
  module.then((m) => { if (!gone) m.mount(component); });
  return () => { gone = true; module.then((m) => m.unmount(parentElement)); };
}
"""


def live_view(runner: LiveRunner) -> None:
    """Draw this runner for as long as the page is open."""
    view = st.components.v2.component("kvviz_live", js=_LOADER, isolate_styles=False)
    view(
        key="live",
        data={
            "token": runner.token,
            "version": asset_version(),
            "base": base_path(),
            "lanes": list(runner.config.lane_names),
            "terms": ANCHORS,
        },
    )
