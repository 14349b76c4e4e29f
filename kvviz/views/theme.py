"""One visual language: colours by meaning, for light and dark; layout defaults; formats.

A lane has one colour everywhere. The twelve hues are chosen by search so that any two, and each
and a hole, stay 0.085 apart in OKLab under normal, protan, deutan and tritan vision; so 60
requests are told apart by hue and pattern (`PATTERNS`); who it is says the hover.
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
    cached: str
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
    "#cfe3d4",
    "#f6c9a8",
    {
        "contiguous": "#c2410c",
        "buddy": "#a21caf",
        "tlsf": "#9f1239",
        "split": "#8a5a00",
        "cells": "#5f6b00",
        "scattered": "#0f766e",
        "paged": "#0b66c3",
        "prefix": "#4f46e5",
        "virtual": "#15803d",
    },
    "#3d4a63",
    "#8b9bb8",
    "#c9a227",
    "#e07b39",
    "#dfe5ee",
    "#b42318",
    (
        "#43a6c3",
        "#815c0a",
        "#e9b452",
        "#475cad",
        "#c28e24",
        "#80c7f8",
        "#b24f63",
        "#787bd2",
        "#524c77",
        "#c3bfa2",
        "#9e997d",
        "#8b2b42",
    ),
)
DARK = Theme(
    "dark",
    "#0e1117",
    "#e8ebf1",
    "#a3acbb",
    "#262c38",
    "#1b212c",
    "#24402f",
    "#5e3a22",
    {
        "contiguous": "#fb923c",
        "buddy": "#e879f9",
        "tlsf": "#fb7185",
        "split": "#e3b341",
        "cells": "#bcc95a",
        "scattered": "#2dd4bf",
        "paged": "#5aa9f7",
        "prefix": "#a5a1ff",
        "virtual": "#4ade80",
    },
    "#b7c3da",
    "#66738c",
    "#d9b64a",
    "#ef8f4f",
    "#2a3240",
    "#ff8a80",
    (
        "#796006",
        "#55e9d1",
        "#d9ad8a",
        "#e27d9e",
        "#5658ab",
        "#85bcf5",
        "#9c3e60",
        "#ac8261",
        "#d3d56b",
        "#a7a83b",
        "#7e6e9b",
        "#5c8cda",
    ),
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}

# One symbol for each verdict, in every chart
SYMBOLS = {"fragmented": "x", "capacity": "triangle-down", "queued": "circle", "never": "square"}
SIGNS = {"fragmented": "✕", "capacity": "▼", "queued": "●", "never": "■"}  # the same, in text
# Marks of requests beyond the first twelve, as Plotly names them: none, then the nth of a hue
PATTERNS = ("", "-", "|", "+", ".")
FONT = "'Source Sans', 'Source Sans Pro', system-ui, sans-serif"


def number(value: float) -> str:
    """12,340"""
    return f"{value:,.0f}"


def as_text(words: str) -> str:
    """Words from a file or a person, for plotly: it makes markup and links of some tags."""
    return words.replace("&", "&amp;").replace("<", "&lt;")


def rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def blend(colour: str, ground: str, share: float) -> str:
    """`share` of colour over ground."""
    pairs = zip(rgb(colour), rgb(ground), strict=True)
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def ink(colour: str) -> str:
    """What a pattern is drawn with on `colour`: darker, on dark ones lighter."""
    dark = sum(w * c for w, c in zip((0.3, 0.59, 0.11), rgb(colour), strict=True)) < 110
    return blend(colour, "#ffffff" if dark else "#000000", 0.55)


def legible(ground: str) -> str:
    """The colour of text on `ground`; Plotly's own choice is a mid grey on mid colours."""
    light = sum(w * c for w, c in zip((0.3, 0.59, 0.11), rgb(ground), strict=True)) > 128
    return LIGHT.text if light else LIGHT.paper


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
