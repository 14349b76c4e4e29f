"""The recording page's inputs and pieces: a file that was uploaded, or a run made for the page."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import streamlit as st

from kvviz.build import build_lanes
from kvviz.errors import KvvizError
from kvviz.html.document import report
from kvviz.live.published import Published
from kvviz.live.replayed import Replay
from kvviz.recording.files import SUFFIX, unpack
from kvviz.recording.tape import Tape
from kvviz.ui.frames import charts, head, maps, stamp, tables
from kvviz.ui.text import plain
from kvviz.views.theme import THEMES, Theme
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config

UPLOAD, MAKE = "A file", "Made here"
STEPS = (100, 300, 600, 1000, 2000)
TITLES = {
    "time": "Free vs admissible, over the last steps",
    "size": "How many requests of size r fit",
    "holes": "Holes by size",
    "unusable": "Unusable index, by size of the request",
    "bytes": "Where the bytes are",
}
_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d"],
    "toImageButtonOptions": {"format": "png", "scale": 2},
}
_TONES = {"alarm": "red", "tight": "orange", "calm": "gray"}


@dataclass(frozen=True)
class Chosen:
    """A recording to look at, and its file."""

    replay: Replay
    data: bytes
    name: str


def choose() -> Chosen | None:
    """What the sidebar names; None while nothing was given, or it can't be read (it says why)."""
    with st.sidebar:
        source = st.radio("Recording", (UPLOAD, MAKE), key="source", horizontal=True)
        if source == UPLOAD:
            return _uploaded()
        return _made()


def _uploaded() -> Chosen | None:
    given = st.file_uploader(f"Recording ({SUFFIX})", type=[SUFFIX], key="recording")
    st.caption(f"`python -m kvviz run --record run{SUFFIX}` makes one.")
    return _read(given.getvalue(), given.name) if given else None


def _made() -> Chosen | None:
    """A dry run: the same record of memory as that of the same settings on real tensors."""
    preset = st.selectbox(
        "Preset", list(PRESETS), index=list(PRESETS).index(DEFAULT_PRESET), key="of-preset"
    )
    steps = st.select_slider("Steps", STEPS, value=STEPS[1], key="of-steps")
    st.caption("Memory only: no model runs, the record of memory is the same.")
    if st.button("Record", key="record", type="primary"):
        st.session_state["made"] = (f"{preset}-{steps}{SUFFIX}", _record(preset, steps))
    if "made" not in st.session_state:
        return None
    name, data = st.session_state["made"]
    st.download_button("Download the recording", data, name, key="save", on_click="ignore")
    return _read(data, name)


def _record(preset: str, steps: int) -> bytes:
    lanes = build_lanes(preset_config(preset).replace({"dry": True}), history=steps)
    try:
        tape = Tape(lanes)
        for _ in range(steps):
            lanes.step()
            tape.take()
        return tape.close("dry")
    finally:
        lanes.close()


def _read(data: bytes, name: str) -> Chosen | None:
    """Read once a session, for as long as it is the one looked at."""
    digest = hashlib.sha256(data).hexdigest()
    kept = st.session_state.get("replay")
    if kept is None or kept[0] != digest:
        try:
            kept = (digest, Replay(unpack(data)))
        except KvvizError as error:
            st.error(plain(str(error)))
            return None
        st.session_state["replay"] = kept
        st.session_state.pop("index", None)
        st.session_state.pop("report", None)
    return Chosen(kept[1], data, name)


def pick(chosen: Chosen) -> int:
    """The recorded step to look at, as an index."""
    steps = chosen.replay.recording.steps.tolist()
    if len(steps) == 1:
        return 0
    last = len(steps) - 1
    return st.select_slider(
        "Step", range(last + 1), value=last, format_func=lambda i: f"{steps[i]:,}", key="index"
    )


def offer_report(chosen: Chosen) -> None:
    """Made on demand, for it takes seconds."""
    with st.sidebar:
        if st.button("Make the report", key="make-report"):
            with st.spinner("Drawing up to 60 steps…"):
                st.session_state["report"] = report(chosen.replay.recording)
        if "report" in st.session_state:
            st.download_button(
                "Download report (HTML)",
                st.session_state["report"],
                chosen.name.removesuffix(SUFFIX) + ".html",
                "text/html",
                key="save-report",
                on_click="ignore",
            )


def show(published: Published) -> None:
    """One step: verdict, both maps, charts, numbers, stamp."""
    theme = THEMES[st.context.theme.type or "light"]
    words = head(published, theme)
    verdict = words["verdict"]
    text, detail = plain(verdict["text"]), plain(verdict["detail"])
    st.markdown(f":{_TONES[verdict['tone']]}[**{text}**]  \n{detail}")
    columns = st.columns(len(published.lanes)) if len(published.lanes) < 4 else st.columns(2) * 5
    drawn = maps(published, theme, "request")
    for column, (name, lane) in zip(columns, words["lanes"].items(), strict=False):
        with column:
            st.markdown(f"**{name.capitalize()}** {lane['what']}")
            st.caption(" · ".join(f"{n['name']} **{n['value']}**" for n in lane["figures"]))
            _plot(f"map-{name}", drawn[f"map-{name}"], lane["alt"])
    _charts(published, theme)
    _numbers(published)
    st.caption(plain(stamp(published)))


def _charts(published: Published, theme: Theme) -> None:
    drawn = charts(published, theme)
    names = list(TITLES)
    for row in (names[:3], names[3:]):
        for column, name in zip(st.columns(len(row)), row, strict=True):
            with column:
                st.markdown(f"**{TITLES[name]}**")
                _plot(name, drawn[name], TITLES[name])


def _plot(name: str, figure: dict, alt: str) -> None:
    st.plotly_chart(figure, theme=None, key=f"plot-{name}", config=_CONFIG, alt=alt)


def _numbers(published: Published) -> None:
    for group, rows in tables(published).items():
        with st.expander(group):
            st.dataframe(
                [
                    {
                        "number": row,
                        "lane": lane,
                        "value": cell["value"],
                        "formula": cell["formula"],
                        "source": cell["source"],
                        "note": cell["note"],
                    }
                    for row, cells in rows.items()
                    for lane, cell in cells.items()
                ],
                hide_index=True,
                key=f"numbers-{group}",
            )
