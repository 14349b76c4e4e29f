"""The scenario page: choose or upload a file, see each step, read the results.

A replay is exact, so nothing of it is kept but its report: a picture is made by replaying up to
the rows that it shows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import streamlit as st

from kvviz.errors import KvvizError
from kvviz.scenario.examples import examples
from kvviz.scenario.memory import Frame, build
from kvviz.scenario.parts import Scenario
from kvviz.scenario.read import read
from kvviz.scenario.replay import frames, headed, replay
from kvviz.scenario.requests import RequestsReplay
from kvviz.scenario.table import (
    OPS_COLUMNS,
    REQUEST_COLUMNS,
    op_cells,
    reasons,
    request_cells,
    whole,
)
from kvviz.ui.style import figure_theme, page_title
from kvviz.ui.terms import term_links
from kvviz.ui.text import plain
from kvviz.views.findings import columns_said
from kvviz.views.strip import StripRow, is_coarse, over_steps, strip
from kvviz.views.theme import SIGNS

ROWS = 18
_CONFIG = {"displayModeBar": False, "responsive": True}


def scenario_page() -> None:
    """All of the page. What is wrong with a file is told in a line."""
    page_title("Scenarios: an incident, replayed exactly", "Step by step, from a small file.")
    source = _choose()
    try:
        scenario, told, lines = _replayed(source)
    except KvvizError as error:
        st.error(plain(str(error)))
        return
    if scenario.title or scenario.story:
        st.markdown(f"**{plain(scenario.title)}** {plain(scenario.story)}")
    _verdict(told)
    total = len(told["ops"]) if scenario.ops is not None else told["steps"]
    if total:
        _pictures(source, scenario, told, lines, total)
    _results(told)


def _choose() -> str | bytes:
    """The text of an example, or what was uploaded."""
    shipped = examples()
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    name = left.selectbox(
        "Scenario",
        list(shipped),
        key="scenario",
        format_func=_title,
        bind="query-params",
        help="An incident as a small JSON file: operations on one memory, or requests to serve.",
    )
    with right.popover("Upload or download a file", width="stretch"):
        given = st.file_uploader(
            "Your own scenario (JSON); it is shown instead", type=["json"], max_upload_size=1
        )
        st.download_button(
            "Download this example", shipped[name], f"{name}.json", "application/json"
        )
    return shipped[name] if given is None else given.getvalue()


@st.cache_data(max_entries=64, show_spinner=False)
def _title(name: str) -> str:
    return read(examples()[name]).title


@st.cache_data(max_entries=32, show_spinner="Replaying")
def _replayed(source: str | bytes) -> tuple[Scenario, dict[str, Any], np.ndarray]:
    """(scenario, report, one line a step int64 [steps, 6])."""
    scenario = read(source)
    run = replay(scenario)
    told = headed(scenario, run.report())
    lines = run.lines if isinstance(run, RequestsReplay) else []
    return scenario, told, np.array(lines, np.int64).reshape(-1, 6)


@st.cache_data(max_entries=64, show_spinner="Replaying")
def _frames(source: str | bytes, first: int, last: int) -> list[Frame]:
    return list(frames(read(source), first, last))


def _verdict(told: dict[str, Any]) -> None:
    start = told["start"]
    if start and not start["ok"]:
        st.error(plain(f"Refused at start: {start['reason']}"))
    elif start:
        st.success(f"max_len {start['max_len']:,} fits {start['concurrency']:.2f} times.")
    if told["kind"] == "requests":
        sentences = whole(told)
        alarm = bool(told["deadlock"] or told["stopped"])
    else:
        sentences = reasons(told)
        alarm = any(row["verdict"] == "fragmented" for row in told["ops"]) or bool(told["alarm"])
    if sentences:
        shown = sentences[:8]
        more = [f"and {len(sentences) - 8:,} more, in the table"] if len(sentences) > 8 else []
        (st.warning if alarm else st.info)("  \n".join(plain(line) for line in shown + more))


def _pictures(
    source: str | bytes,
    scenario: Scenario,
    told: dict[str, Any],
    lines: np.ndarray,
    total: int,
) -> None:
    theme = figure_theme()
    word = "Operation" if scenario.ops is not None else "Step"
    chosen = total
    if total > 1:
        chosen = st.slider(word, 1, total, min(total, ROWS), key=f"at-{word}-{total}")
    if len(lines):
        st.plotly_chart(
            over_steps(
                lines[:, 0],
                lines[:, 1],
                lines[:, 5],
                theme,
                pool=told["capacity"],
                chosen=chosen,
            ),
            theme=None,
            config=_CONFIG,
            key="over-steps",
            alt=f"Over the steps: at most {lines[:, 1].max():,} of {told['capacity']:,} slots "
            f"used, at most {lines[:, 5].max():,} requests waiting",
        )
    first = max(0, min(chosen - ROWS // 2, total - ROWS)) if total > ROWS else 0
    last = min(total, first + ROWS)
    rows = [
        StripRow(f.label, f.columns, f.names, f.ask, f.note) for f in _frames(source, first, last)
    ]
    paged = build(scenario).paged
    st.plotly_chart(
        strip(rows, theme, capacity=told["capacity"], paged=paged, chosen=chosen - 1 - first),
        theme=None,
        config=_CONFIG,
        key="strip",
        alt=f"The pool after {word.lower()}s {first + 1} to {last}, a row each. After "
        f"{word.lower()} {chosen}: {columns_said(rows[chosen - 1 - first].columns)}.",
    )
    notes = [f"{word}s {first + 1:,} to {last:,} of {total:,}."] if total > ROWS else []
    if any(is_coarse(row) for row in rows):
        notes.append("Rows with very many pieces are summed up: the darker, the more is in use.")
    notes.append("Colour: who holds the slots. Pale: reserved, not written. Dashed: refused.")
    st.caption(" ".join(notes))


def _results(told: dict[str, Any]) -> None:
    if told["kind"] == "ops":
        names, rows = OPS_COLUMNS, [op_cells(row) for row in told["ops"]]
    else:
        names, rows = REQUEST_COLUMNS, [request_cells(row) for row in told["requests"]]
    if rows:
        st.dataframe(
            {name: [_signed(row[i]) for row in rows] for i, name in enumerate(names)},
            hide_index=True,
            height=min(38 + 35 * len(rows), 460),
        )
    term_links("verdict", "hole", "unusable free space index", "fragmentation index", "compaction")
    st.download_button(
        "Download the results",
        json.dumps(told, indent=1) + "\n",
        "scenario-report.json",
        "application/json",
    )


def _signed(cell: str) -> str:
    """A verdict with the symbol that it has in every chart."""
    return f"{SIGNS[cell]} {cell}" if cell in SIGNS else cell
