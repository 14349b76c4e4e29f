"""One visual language: colours by meaning, for light and dark; layout defaults; formats.

A lane has one colour everywhere. The twelve hues are chosen by search so that any two, and each
and a hole, stay 0.1 apart in OKLab under normal, protan, deutan and tritan vision; identity comes
from hover, colour only separates neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Figure = dict[str, Any]


@dataclass(frozen=True)
class Theme:
    name: str
    paper: str
    text: str
    quiet: str
    grid: str
    hole: str
    stuck: str
    lanes: dict[str, str]
    written: str
    reserved: str
    internal: str
    external: str
    usable: str
    alarm: str
    hues: tuple[str, ...]


LIGHT = Theme(
    "light",
    "#ffffff",
    "#1f2430",
    "#5b6474",
    "#e4e8ef",
    "#eceff4",
    "#f6c9a8",
    {"contiguous": "#c2410c", "paged": "#0b66c3"},
    "#3d4a63",
    "#8b9bb8",
    "#c9a227",
    "#e07b39",
    "#dfe5ee",
    "#b42318",
    (
        "#8fb9a9",
        "#6f0f82",
        "#b4481e",
        "#a989c2",
        "#f16935",
        "#861309",
        "#b26c77",
        "#e7aaf5",
        "#374cbe",
        "#68526c",
        "#7271eb",
        "#5ce483",
    ),
)
DARK = Theme(
    "dark",
    "#0e1117",
    "#e8ebf1",
    "#a3acbb",
    "#262c38",
    "#1b212c",
    "#5e3a22",
    {"contiguous": "#fb923c", "paged": "#5aa9f7"},
    "#b7c3da",
    "#66738c",
    "#d9b64a",
    "#ef8f4f",
    "#2a3240",
    "#ff8a80",
    (
        "#a9d69e",
        "#4f48bf",
        "#a13124",
        "#5d7bf1",
        "#ae6aa8",
        "#73b6fa",
        "#7a4a76",
        "#db551d",
        "#fadf27",
        "#2bfdf4",
        "#c8b222",
        "#8ba386",
    ),
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}

# One symbol for each verdict, in every chart
SYMBOLS = {"fragmented": "x", "capacity": "triangle-down", "queued": "circle", "never": "square"}
FONT = "'Source Sans', 'Source Sans Pro', system-ui, sans-serif"


def number(value: float) -> str:
    """12,340"""
    return f"{value:,.0f}"


def rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def blend(colour: str, ground: str, share: float) -> str:
    """`share` of colour over ground."""
    pairs = zip(rgb(colour), rgb(ground), strict=True)
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def faded(colour: str, alpha: float) -> str:
    r, g, b = rgb(colour)
    return f"rgba({r},{g},{b},{alpha})"


def layout(
    theme: Theme, *, height: int, margin: tuple[int, int, int, int], **more: Any
) -> dict[str, Any]:
    """Defaults of every figure. margin: left, right, top, bottom, in px."""
    left, right, top, bottom = margin
    return {
        "height": height,
        "margin": {"l": left, "r": right, "t": top, "b": bottom, "pad": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": theme.text},
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "align": "left"},
        "showlegend": False,
        "hovermode": "closest",
        **more,
    }


def axis(theme: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 11, "color": theme.quiet}, "standoff": 4},
        "gridcolor": theme.grid,
        "zerolinecolor": theme.grid,
        "linecolor": theme.grid,
        "tickfont": {"size": 11, "color": theme.quiet},
        "zeroline": False,
        **more,
    }
