"""The bench page: the last full run, or a file that somebody else made."""

from __future__ import annotations

import streamlit as st

from kvviz.bench.report import LAST_RUN, Report, read, targets
from kvviz.bench.result import Measured
from kvviz.errors import BenchError
from kvviz.ui.recorded import plain
from kvviz.ui.style import figure_theme, page_title
from kvviz.views.bench import against_targets, amount, finding, target, verdict

_CONFIG = {"displayModeBar": False, "responsive": True}
_COMMAND = "python -m kvviz bench --json data/bench.json"


def bench_page() -> None:
    """All of the page. What is wrong with a file is told in a line."""
    page_title("Bench: measured, against target and floor", "What the last full run found.")
    data = _choose()
    if data is None:
        st.info(f"No full run is kept yet. `{_COMMAND}` makes one.")
        return
    try:
        report = read(data)
    except BenchError as error:
        st.error(plain(str(error)))
        return
    _summary(report)
    for name, figures in report.figures.items():
        _bench(name, figures)
    for name, why in report.left_out.items():
        st.caption(f"{plain(name)} was left out: {plain(why)}")


def _choose() -> bytes | None:
    with st.expander("Another run"):
        given = st.file_uploader(
            "A bench's JSON; it is shown instead", type=["json"], max_upload_size=1, key="bench"
        )
        st.caption("`python -m kvviz bench --json FILE` writes one.")
    if given is not None:
        return given.getvalue()
    try:
        return LAST_RUN.read_bytes()
    except OSError:
        return None


def _summary(report: Report) -> None:
    every = [figure for figures in report.figures.values() for figure in figures]
    held, missed = targets(every)
    st.markdown(f"**{held} of {held + missed} targets held, {missed} missed.**")
    about = report.about
    told = [plain(about[key]) for key in ("machine", "load", "when") if key in about]
    if "kvviz" in about:
        told.insert(1, f"kvviz {plain(about['kvviz'])}")
    st.caption(" · ".join(told))
    if "command" in about:
        st.code(about["command"], language=None)
    st.caption(
        "A bar is value / target, the line is the target: *at least* must reach it, *at most* must "
        "not pass it. The diamond is the floor, what no code on that machine can beat: bytes over "
        "bandwidth, or calls times what a call costs, measured in the same run."
    )


def _bench(name: str, figures: tuple[Measured, ...]) -> None:
    st.header(plain(name), anchor=False)
    chart = against_targets(figures, figure_theme())
    if chart is not None:
        alt = finding(name, figures)
        st.plotly_chart(chart, theme=None, key=f"bench-{name}", config=_CONFIG, alt=alt)
    with st.expander(f"All {len(figures)} figures", expanded=chart is None):
        st.dataframe([_row(figure) for figure in figures], hide_index=True, key=f"rows-{name}")


def _row(figure: Measured) -> dict[str, str]:
    floor = "" if figure.floor is None else amount(figure.floor, figure.unit)
    return {
        "figure": figure.name,
        "value": amount(figure.value, figure.unit),
        "target": target(figure),
        "": verdict(figure),
        "floor": floor,
        "floor is": figure.floor_of,
    }
