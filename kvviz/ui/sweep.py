"""The sweep page's controls, each a parameter of the address, and its figures."""

from __future__ import annotations

from typing import Any

import streamlit as st

from kvviz.config import RunConfig, parse_overrides
from kvviz.errors import ConfigError
from kvviz.model.known import require_known
from kvviz.sweeps.grid import FIXED, MAX_STEPS, Grid, parse_axes, parse_seeds
from kvviz.sweeps.kept import Kept, default_folder
from kvviz.sweeps.pool import Pool
from kvviz.sweeps.sweep import run_sweep
from kvviz.sweeps.table import FIGURES, by_seed, mean_over_seeds
from kvviz.ui.jobs import desk
from kvviz.ui.text import plain
from kvviz.views import sweep as views
from kvviz.views.findings import heat_said, lines_said
from kvviz.views.theme import Theme
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config

NONE = "none"
AXES = [path for path, _, _ in RunConfig().walk() if path not in FIXED]
FIRST, FIRST_VALUES = "paged.block_size", "1,2,4,8,16,32,64,128,256"
SECOND_VALUES = "first,best,worst,next"


def choose() -> Grid | None:
    """The grid that the controls describe; None, and why, when it can't be."""
    bound: dict[str, Any] = {"bind": "query-params"}
    with st.sidebar:
        preset = st.selectbox(
            "Preset", list(PRESETS), list(PRESETS).index(DEFAULT_PRESET), key="preset", **bound
        )
        first = st.selectbox("First setting", AXES, AXES.index(FIRST), key="x", **bound)
        x = st.text_input("Its values", FIRST_VALUES, key="xs", help=_help(first), **bound)
        second = st.selectbox("Second setting", [NONE, *AXES], key="y", **bound)
        y = ""
        if second != NONE:
            y = st.text_input("Its values", SECOND_VALUES, key="ys", help=_help(second), **bound)
        lanes = st.text_input("Lanes", "contiguous,paged", key="lanes", **bound)
        seeds = st.text_input("Seeds", "1-3", key="seeds", **bound)
        steps = st.number_input("Steps", 100, MAX_STEPS, 1000, 100, key="steps", **bound)
        more = st.text_input(
            "Other settings", "", key="set", placeholder="memory.slots=16384 mix.rate=0.3", **bound
        )
        st.selectbox("Figure", list(FIGURES), key="figure", format_func=lambda name: name, **bound)
    words = [f"{first}={x}", *([f"{second}={y}"] if second != NONE else [])]
    try:
        base = preset_config(preset).replace({**parse_overrides(more.split()), "lanes": lanes})
        require_known(base.model)
        return Grid(base, parse_axes(words), parse_seeds(seeds), steps)
    except ConfigError as error:
        st.error(plain(str(error)))
        return None


def start(grid: Grid) -> None:
    """Run it in this session's thread."""

    def work(told: Any, cancelled: Any) -> dict[str, Any]:
        return run_sweep(grid, Pool(), Kept(default_folder()), told=told, cancelled=cancelled)

    desk().start("sweep", work)


def draw(result: dict[str, Any], theme: Theme) -> None:
    """A line a lane over one setting, a heat map a lane over two."""
    figure = st.session_state["figure"]
    title = FIGURES[figure]
    _say(result)
    means = {lane: mean_over_seeds(result, lane, figure) for lane in result["lanes"]}
    axes = result["axes"]
    if len(axes) == 1:
        ((path, values),) = axes.items()
        spread = {lane: by_seed(result, lane, figure) for lane in result["lanes"]}
        chart = views.lines(path, values, means, theme, title=title, by_seed=spread)
        alt = lines_said(path, values, means, title)
        st.plotly_chart(chart, theme=None, key="lines", alt=alt)
        return
    (rows, row_values), (columns, column_values) = axes.items()
    limits = views.colour_limits(list(means.values()))
    for place, (lane, table) in zip(_places(len(means)), means.items(), strict=True):
        chart = views.heat(
            (rows, columns), (row_values, column_values), table, lane, theme,
            title=title, limits=limits,
        )  # fmt: skip
        alt = heat_said((rows, columns), (row_values, column_values), table, lane, title)
        place.plotly_chart(chart, theme=None, key=f"heat-{lane}", alt=alt)


def _places(count: int) -> list[Any]:
    """Side by side in twos."""
    found: list[Any] = []
    while len(found) < count:
        found += st.columns(2)
    return found[:count]


def _say(result: dict[str, Any]) -> None:
    """What is shown, and what is missing from it."""
    cells = result["cells"]
    lines = len(result["seeds"]) > 1 and len(result["axes"]) == 1
    st.caption(
        f"{' × '.join(result['axes'])}, preset {plain(result['config']['preset'])}, "
        f"{result['steps']:,} steps, mean of {len(result['seeds'])} seed(s)"
        f"{', whiskers from the lowest to the highest' if lines else ''}; "
        f"{result['ran']:,} cells run now, {result['read_from_disk']:,} read from disk. Dry runs."
    )
    if not result["complete"]:
        missing = sum(cell["lanes"] is None for cell in cells)
        st.warning(f"{missing:,} of {len(cells):,} cells are missing; press Run to go on.")
    for why in {cell["failed"] for cell in cells if cell["failed"]}:
        st.error(plain(why))


def _help(path: str) -> str:
    meta = _META[path]
    choices = f" One of {', '.join(meta['choices'])}." if meta["choices"] else ""
    return f"{meta['help'].capitalize()}.{choices} Separated by commas."


_META = {path: meta for path, _, meta in RunConfig().walk()}
