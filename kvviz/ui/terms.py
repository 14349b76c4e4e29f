"""The terms page: a heading with its own link for each term."""

from __future__ import annotations

import streamlit as st

from kvviz.lesson.terms import FORMULAS, SYMBOLS, WORDS, Term
from kvviz.ui.style import page_title

_CSS = "<style>h3 { scroll-margin-top: 4rem; }</style>"  # a linked heading stays below the bar


def terms_page() -> None:
    st.html(_CSS)
    page_title("Terms: every number, its formula and its source")
    st.markdown(
        f"{SYMBOLS} The [lesson](lesson) shows most of them at work. On the Live page, point at a "
        "number: its hover has the formula of this page, filled in; its name leads back here."
    )
    for title, terms in (("Words", WORDS), ("Formulas", FORMULAS)):
        st.header(title, anchor=False, divider="grey")
        for term in terms:
            _term(term)


def term_links(*names: str) -> None:
    """A line with links to these terms, by their names on the page."""
    anchors = {term.name: term.anchor for term in (*WORDS, *FORMULAS)}
    links = (f"[{name}](terms#{anchors[name]})" for name in names)
    st.caption(f"What is meant: {', '.join(links)}.")


def _term(term: Term) -> None:
    with st.container(gap="small"):  # a heading takes one back
        st.subheader(term.name, anchor=term.anchor)
        if term.formula:
            st.code(term.formula, language=None, wrap_lines=True)
        source = f" *({term.source})*" if term.source else ""
        st.markdown(f"{term.says}{source}", width=860)
