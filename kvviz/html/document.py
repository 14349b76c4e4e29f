"""Puts the report together: one file, nothing fetched, no script but its own."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from kvviz.html import sections, steps
from kvviz.live.replayed import Replay
from kvviz.recording.recording import Recording
from kvviz.ui.frames import head, stamp
from kvviz.views.theme import DARK, LIGHT, Theme

CHARTS = {
    "time": ("Free vs admissible, over the whole run", "Dotted: free slots; solid: the largest "
             "request that finds a place; shaded: free, and of no use to it. Marks: first "
             "refusals at the size asked for, the newest 120 of each kind: ✕ fragmented, "
             "▼ capacity, ● queued."),
    "size": ("How many requests of size r fit", "Dashed in a lane's colour: if compacted. Dashed "
             "in red: the next request."),
    "holes": ("Holes by size", "Dashed: the next request."),
    "unusable": ("Unusable index, by size of the request", "Share of the free slots that requests "
                 "of r can't use. Dashed: the next request."),
    "bytes": ("Where the bytes are", "Token states; reserved, used later; internal waste (/); "
              "external waste (x); free and usable."),
}  # fmt: skip


def report(recording: Recording) -> str:
    """The whole HTML document. Raises RecordingError when the recording is damaged."""
    replay = Replay(recording)
    indices = steps.chosen(replay)
    frames = [steps.step(replay.at(index)) for index in indices]
    alarms = [i for i, frame in enumerate(frames) if frame["verdict"]["tone"] == "alarm"]
    first = alarms[-1] if alarms else len(frames) - 1
    payload = steps.packed(
        {
            "steps": frames,
            "time": steps.over_time(replay),
            "first": first,
            "dark": steps.dark_colours(),
            "palette": steps.dark_palette(),
        }
    )
    scripts = [_plotly(), _asset("report.js")]
    return _PAGE.format(
        policy=_policy(scripts),
        title=escape(_title(recording)),
        style=_style(recording.lanes) + _asset("report.css"),
        body=_body(recording, replay, indices[first], frames, first),
        payload=payload,
        plotly=scripts[0],
        script=scripts[1],
    )


def _body(
    recording: Recording, replay: Replay, index: int, frames: list[dict[str, Any]], first: int
) -> str:
    published = replay.at(index)
    lanes = head(published, LIGHT)["lanes"]
    frame, m = frames[first], recording.manifest
    facts = (
        f"{len(recording.steps):,} steps recorded, every {m.every:,}: "
        f"{int(recording.steps[0]):,} to {int(recording.steps[-1]):,}"
        if m.every > 1
        else f"steps {int(recording.steps[0]):,} to {int(recording.steps[-1]):,}"
    )
    kind = "memory only, no model (dry)" if m.config.dry else f"real tensors, {m.device}"
    facts = f"{facts}. {kind}, {m.machine}. {m.when}. kvviz {m.kvviz}."
    verdict = frame["verdict"]
    return f"""
<header><h1>{escape(_title(recording))}</h1>
<p class="quiet">{escape(facts)}</p>
</header>
<noscript><p class="note">Figures and the slider need JavaScript; the text and tables do not.</p>
</noscript>
<section class="verdict" data-tone="{escape(verdict["tone"])}" id="verdict" aria-live="polite">
<p class="text">{escape(verdict["text"])}</p><p class="detail">{escape(verdict["detail"])}</p>
</section>
<label class="slider">step <output id="step">{frame["step"]:,}</output>
<input type="range" id="slider" min="0" max="{len(frames) - 1}" value="{first}"
 aria-label="Recorded step"><span class="quiet">{len(frames)} of {len(recording.steps):,} recorded
 steps</span></label>
<div class="lanes">{"".join(_lane(name, lanes[name]) for name in recording.lanes)}</div>
<div class="charts">{"".join(_chart(name, recording.lanes) for name in CHARTS)}</div>
<h2>The whole run</h2>{sections.summary(recording)}
<h2>The numbers at step <span class="at">{frame["step"]:,}</span></h2>
{sections.numbers(frame["numbers"])}
<h2>Settings</h2>{sections.settings(recording.config)}
<h2>Events</h2>{sections.events(recording)}
<h2>Words</h2>{sections.words()}
<footer>{escape(stamp(replay.at(len(recording.steps) - 1)))}</footer>"""


def _title(recording: Recording) -> str:
    return f"kvviz: {', '.join(recording.lanes)} | {recording.config.preset or 'own settings'}"


def _lane(name: str, lane: dict[str, Any]) -> str:
    figures = "".join(
        f"<div><b>{escape(n['value'])}</b><span>{escape(n['name'])}</span></div>"
        for n in lane["figures"]
    )
    key = " ".join(
        f'<i class="{escape(kind)}" style="--c:var(--{escape(colour)})"></i>{escape(label)}'
        for kind, colour, label in lane["key"]
    )
    return (
        f'<section class="card" data-lane="{escape(name)}"><h2><i style="background:'
        f'var(--lane-{escape(name)})"></i>{escape(name.capitalize())}</h2>'
        f'<p class="quiet">{escape(lane["what"])}</p><div class="figures">{figures}</div>'
        f'<div class="plot map" id="map-{escape(name)}" role="img" '
        f'aria-label="{escape(lane["alt"])}"></div><p class="quiet key">{key}</p></section>'
    )


def _chart(name: str, lanes: tuple[str, ...]) -> str:
    title, note = CHARTS[name]
    key = "".join(
        f'<i style="background:var(--lane-{escape(lane)})"></i>{escape(lane)} ' for lane in lanes
    )
    return (
        f'<section class="card {name}"><h2>{escape(title)}</h2><p class="quiet">'
        f"{key if name != 'bytes' else ''}{escape(note)}</p>"
        f'<div class="plot" id="chart-{name}" role="img" aria-label="{escape(title)}"></div>'
        "</section>"
    )


def _style(lanes: tuple[str, ...]) -> str:
    def of(theme: Theme) -> str:
        colours = {
            "paper": theme.paper, "text": theme.text, "quiet": theme.quiet, "line": theme.grid,
            "soft": theme.hole, "alarm": theme.alarm, "hole": theme.hole, "stuck": theme.stuck,
            "reserved": theme.reserved, "cached": theme.cached, "written": theme.written,
            **{f"lane-{lane}": theme.lanes[lane] for lane in lanes},
        }  # fmt: skip
        return ":root{" + "".join(f"--{name}:{c};" for name, c in colours.items()) + "}"

    return f"{of(LIGHT)}\n@media (prefers-color-scheme: dark){{{of(DARK)}}}\n"


def _policy(scripts: list[str]) -> str:
    """Nothing from the network, and no script but these."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=1)
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


@lru_cache(maxsize=4)
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<title>{title}</title><style>{style}</style></head>
<body>{body}
<script type="application/octet-stream" id="payload">{payload}</script>
<script>{plotly}</script>
<script>{script}</script>
</body></html>
"""
