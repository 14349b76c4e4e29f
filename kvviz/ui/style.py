"""Small corrections to Streamlit's page, so that one screen holds the whole answer."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

import streamlit as st

from kvviz.ui.follow import follow_theme
from kvviz.views.theme import LIGHT, THEMES, Theme

ICON = Path(__file__).with_name("icon.png")  # a local file: nothing is fetched from elsewhere

_CSS = """<style>
.stMainBlockContainer { padding: 2.5rem 1.2rem 1rem; }
[data-testid=stHeader] { height: 2.4rem; min-height: 2.4rem; }
[data-testid=stSidebarHeader] { height: 2.4rem; padding: .4rem .8rem 0; margin: 0; }
[data-testid=stSidebarUserContent] { padding: 0 1rem 1rem; }
[data-testid=stSidebar] [data-testid=stVerticalBlock] { gap: .35rem; }
[data-testid=stSidebar] [data-testid=stMarkdown]:not(:first-child) { margin-top: .7rem; }
[data-testid=stHeading] :is(h1, h2, h3) { padding: .2rem 0; font-weight: 650; }
[data-testid=stHeading] h1 { font-size: 1.5rem; }
[data-testid=stHeading] h2 { font-size: 1.2rem; }
[data-testid=stHeading] h3 { font-size: 1.05rem; }
/* Streamlit's own pale grey has a contrast of less than 4.5 */
[data-testid=stCaptionContainer], [data-testid=stCaptionContainer] p, .kv-says {
  color: light-dark(#5b6474, #a3acbb); opacity: 1; }
/* White on the dark theme's light blue would be too pale: dark on it */
[data-testid=stBaseButton-primary]:not(:disabled) :is(p, span, kbd),
[data-tag-index], [data-tag-index] :is(span, svg) {
  color: light-dark(#ffffff, #0e1117); opacity: 1; }
[class*=st-key-nothing] { padding: 2.4rem 1.4rem; text-align: center;
  background: light-dark(#f5f6f9, #181d27); border-radius: .5rem; }
.kv-says { margin: 0; }
.st-key-follow-theme { position: absolute; }
.kv-marks { display: flex; flex-wrap: wrap; gap: 0 .9em; font-size: .8rem; }
.kv-marks i { display: inline-block; width: .7em; height: .7em; margin-right: .35em;
  border-radius: 2px; background: var(--c); }
.kv-marks i[data-kind=hatch] { outline: 1px solid var(--c); outline-offset: -1px;
  background: repeating-linear-gradient(45deg, var(--c) 0 2px, transparent 2px 4px); }
.kv-marks i[data-kind=ghost] { background: none; border: 1.5px dashed var(--c); }
.kv-marks i[data-kind=dots] { background: radial-gradient(circle, Canvas 1px, transparent 1.4px)
  0 0 / 4px 4px, var(--c); }
.kv-marks i[data-kind=note] { display: none; }
.kv-lanes-key b { font-size: 1.2em; margin-left: .8em; }
[class*=st-key-nothing] p { text-align: center; }
[class*=st-key-nothing] [data-testid=stMarkdown] { max-width: 46rem; margin: 0 auto; }
@media (max-width: 768px) {
  .stMainBlockContainer { padding-top: 3rem; }
  [data-testid=stHeader] { height: 2.8rem; min-height: 2.8rem; }
}
</style>"""


def page_style() -> None:
    st.html(_CSS)


def page_title(title: str, says: str = "") -> None:
    """The page's one first heading, and a line on what the page is for."""
    follow_theme(figure_theme().name)
    st.title(title, anchor=False)
    if says:
        st.html(f'<p class="kv-says">{escape(says)}</p>')


def nothing_yet(title: str, says: str, action: str = "", *, disabled: bool = False) -> bool:
    """Stands where the results will be: what there will be to see, and the button that makes it,
    for on a phone the sidebar is closed. Was it pressed?"""
    with st.container(key="nothing-yet", horizontal_alignment="center"):
        st.markdown(f"**{title}**")
        st.markdown(says)
        return bool(action) and st.button(action, type="primary", key="begin", disabled=disabled)


def lanes_key(names: Iterable[str], theme: Theme, more: str = "") -> None:
    """Whose colour is whose, in the charts below; `more`: the other marks, in words."""
    lanes = "".join(
        f'<b style="color: {theme.lanes[name]}" aria-hidden="true">■</b> {escape(name)}'
        for name in names
    )
    st.html(f'<p class="kv-says kv-lanes-key">{lanes} &ensp; {escape(more)}</p>')


def marks_key(rows: Iterable[tuple[str, str, str]], theme: Theme) -> None:
    """What the marks of a figure mean. rows: (kind, the theme's name of the colour, label)."""
    marks = "".join(
        f'<span><i data-kind="{kind}" style="--c: {_colour(theme, colour)}"></i>'
        f"{escape(label)}</span>"
        for kind, colour, label in rows
    )
    st.html(f'<p class="kv-says kv-marks">{marks}</p>')


def _colour(theme: Theme, name: str) -> str:
    return theme.quiet if name == "free" else getattr(theme, name)


def figure_theme() -> Theme:
    """The figures' theme that goes with the browser's."""
    return THEMES.get(st.context.theme.type or "", LIGHT)
