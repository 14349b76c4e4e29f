"""Small corrections to Streamlit's page, so that one screen holds the whole answer."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from kvviz.views.theme import LIGHT, THEMES, Theme

ICON = Path(__file__).with_name("icon.png")  # a local file: nothing is fetched from elsewhere

_CSS = """<style>
.stMainBlockContainer { padding: 2.5rem 1.2rem 1rem; }
[data-testid=stHeader] { height: 2.4rem; min-height: 2.4rem; }
[data-testid=stSidebarHeader] { height: 2.4rem; padding: .4rem .8rem 0; margin: 0; }
[data-testid=stSidebarUserContent] { padding: 0 1rem 1rem; }
[data-testid=stSidebar] [data-testid=stVerticalBlock] { gap: .35rem; }
[data-testid=stSidebar] [data-testid=stMarkdown]:not(:first-child) { margin-top: .7rem; }
@media (max-width: 768px) {
  .stMainBlockContainer { padding-top: 3rem; }
  [data-testid=stHeader] { height: 2.8rem; min-height: 2.8rem; }
}
</style>"""


def page_style() -> None:
    st.html(_CSS)


def figure_theme() -> Theme:
    """The figures' theme that goes with the browser's."""
    return THEMES.get(st.context.theme.type or "", LIGHT)
