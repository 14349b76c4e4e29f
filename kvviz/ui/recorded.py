"""The recording page's inputs and pieces: a file that was uploaded, or a run made for the page."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import streamlit as st

from kvviz.build import build_lanes
from kvviz.errors import KvvizError
from kvviz.html.document import report
from kvviz.lesson.terms import ANCHORS
from kvviz.live.hues import Follower, HueBook
from kvviz.live.published import Published
from kvviz.live.replayed import Replay
from kvviz.recording.files import SUFFIX, unpack
from kvviz.recording.tape import Tape
from kvviz.ui.frames import asked, charts, head, maps, stamp, tables
from kvviz.ui.server import hub
from kvviz.ui.style import figure_theme, lanes_key, marks_key
from kvviz.ui.text import plain
from kvviz.views import breakdown
from kvviz.views.findings import charts_said
from kvviz.views.theme import SIGNS, Theme
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config

UPLOAD, MAKE, KEPT = "A file", "Made here", "Live run"
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
    """A recording to look at, and its file. kept: it has a link, which names the step too."""

    replay: Replay
    data: bytes
    name: str
    kept: bool = False


def choose() -> Chosen | None:
    """What the sidebar names; None while nothing was given, or it can't be read (it says why)."""
    kept = st.query_params.get("kept")
    sources = (KEPT, UPLOAD, MAKE) if kept else (UPLOAD, MAKE)
    with st.sidebar:
        if "source-next" in st.session_state:  # a widget's value is set before it is drawn only
            st.session_state["source"] = st.session_state.pop("source-next")
        source = st.radio("Recording", sources, key="source", horizontal=True)
        if source == KEPT:
            return _kept(kept or "")
        return _uploaded() if source == UPLOAD else _made()


def _kept(name: str) -> Chosen | None:
    """One that was saved on the live page, as long as the server has it."""
    found = hub().shelf.get(name)
    if found is None:
        st.warning(
            "This recording is no longer on the server: it keeps the last few. Ask for the file, "
            "or save the run again on the live page."
        )
        return None
    file = found.name + SUFFIX
    st.caption("Saved on the live page. The address leads others to it, and to the step.")
    st.download_button("Download the recording", found.data, file, key="save", on_click="ignore")
    chosen = _read(found.data, file)
    return replace(chosen, kept=True) if chosen else None


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


def make_default() -> None:
    """Records the first preset, as the button of the sidebar does; the next run shows it."""
    st.session_state["source-next"] = MAKE
    st.session_state["made"] = (
        f"{DEFAULT_PRESET}-{STEPS[1]}{SUFFIX}",
        _record(DEFAULT_PRESET, STEPS[1]),
    )


def _record(preset: str, steps: int) -> bytes:
    lanes = build_lanes(preset_config(preset).replace({"dry": True}), history=steps)
    try:
        tape, colours = Tape(lanes), Follower(HueBook())
        for _ in range(steps):
            lanes.step()
            tape.take()
            colours.step(lanes)
        return tape.close("dry", looks=colours.book.looks)
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
    recording = chosen.replay.recording
    steps = recording.steps.tolist()
    if len(steps) == 1:
        return 0
    last = len(steps) - 1
    shown = recording.manifest.shown
    asked = st.query_params.get("step", "") if chosen.kept else ""
    if asked.isascii() and asked.isdigit() and len(asked) < 13:
        shown = int(asked)
    if "index" not in st.session_state:  # as a changing default it would make a new slider
        st.session_state["index"] = last if shown < 0 else recording.at(shown)
    index = st.select_slider(
        "Step", range(last + 1), format_func=lambda i: f"{steps[i]:,}", key="index"
    )
    if chosen.kept:
        st.query_params["step"] = str(steps[index])
    return index


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
    theme = figure_theme()
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
            marks_key(lane["key"], theme)
    _charts(published, theme)
    _numbers(published)
    st.caption(plain(stamp(published)))


def _charts(published: Published, theme: Theme) -> None:
    drawn = charts(published, theme)
    shown = {name: lane.snapshot for name, lane in published.lanes.items()}
    said = charts_said(shown, asked(shown))
    signs = ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())
    lanes_key(shown, theme, f"Red dashes: the next request. Dotted: free. Refused: {signs}.")
    names = list(TITLES)
    for row in (names[:3], names[3:]):
        for column, name in zip(st.columns(len(row)), row, strict=True):
            with column:
                st.markdown(f"**{TITLES[name]}**")
                _plot(name, drawn[name], said[name])
                if name == "bytes":
                    marks_key(breakdown.legend(), theme)


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
                        "term": f"terms#{ANCHORS.get(cell['name'], '')}",
                    }
                    for row, cells in rows.items()
                    for lane, cell in cells.items()
                ],
                hide_index=True,
                key=f"numbers-{group}",
                column_config={"term": st.column_config.LinkColumn(display_text="what it is")},
            )
