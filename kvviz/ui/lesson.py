"""The lesson page: a step at a time, each with its own link, an action and what it changed.

An action builds its pool afresh, carries the step out on the tensors and gives the pool back;
what it showed stays with the session.
"""

from __future__ import annotations

import numpy as np
import streamlit as st

from kvviz.errors import KvvizError
from kvviz.lesson.pool import Bench, Check, Scene
from kvviz.lesson.questions import QUESTIONS, Question
from kvviz.lesson.shown import Shown
from kvviz.lesson.steps import END, STEPS, Step
from kvviz.records import HOLE
from kvviz.ui.keys import arrow_keys
from kvviz.ui.server import hub
from kvviz.ui.style import figure_theme, page_title
from kvviz.ui.text import plain
from kvviz.views.findings import charts_said, map_said
from kvviz.views.holes import histogram
from kvviz.views.lesson import block_lines, lesson_map
from kvviz.views.strip import StripRow
from kvviz.views.theme import Figure

LAST = "questions"
PLACES = (*(str(i + 1) for i in range(len(STEPS))), LAST)
# On a phone a table scrolls sideways; else its sentences would be a word wide
_CSS = "<style>[data-testid=stTable] td:nth-child(n+3) { min-width: 11rem; }</style>"
_TEXT = 860  # px: longer lines are hard to read
_CONFIG = {"displayModeBar": False, "responsive": True}


def loaded() -> Bench:
    """What the pools are made from; loads the model when nobody has yet."""
    backend = hub().backend()
    return Bench(backend.model.shape, backend.model.device, backend.budget)


def lesson_page(bench: Bench) -> None:
    """All of the page. A pool that does not fit is told in a line."""
    st.html(_CSS)
    place = _navigate()
    try:
        if place == LAST:
            _questions(bench)
        else:
            _step(int(place), STEPS[int(place) - 1], bench)
    except KvvizError as error:
        st.error(plain(str(error)))
    st.caption(
        "Every map is drawn from a real layout, and K and V are really written, moved and read. "
        "Formulas and sources: [Terms](terms). The numbers on the Live page have the same words "
        "when you point at them."
    )


def _navigate() -> str:
    """Where the reader is: back, the places, next."""
    with st.container(horizontal=True, vertical_alignment="center"):
        at = st.session_state.get("step") or st.query_params.get("step") or PLACES[0]
        at = PLACES.index(at) if at in PLACES else 0
        st.button(
            "Back", on_click=_go, args=(at - 1,), shortcut="Left", disabled=at == 0, key="back"
        )
        st.button(
            "Next",
            on_click=_go,
            args=(at + 1,),
            shortcut="Right",
            disabled=at == len(PLACES) - 1,
            key="next",
        )
        chosen = st.segmented_control(
            "Step",
            PLACES,
            # Streamlit warns of a default beside a value that a button has set
            default=None if "step" in st.session_state else PLACES[0],
            required=True,
            key="step",
            label_visibility="collapsed",
            wrap=True,
            bind="query-params",
        )
    arrow_keys(back="back", next="next", places="step")
    return chosen or PLACES[0]  # none: the address has an empty step


def _go(to: int) -> None:
    st.session_state["step"] = PLACES[to]


def _step(number: int, step: Step, bench: Bench) -> None:
    page_title(f"Step {number} of {len(STEPS)}: {step.title}")
    st.markdown(step.words, width=_TEXT)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        choice = ""
        if step.choices:
            choice = st.segmented_control(
                step.choice,
                step.choices,
                default=step.choices[0],
                required=True,
                key=f"choice-{number}",
            )
        pressed = st.button(step.action, type="primary", key=f"act-{number}", shortcut="A")
    done: dict[tuple[int, str], Shown] = st.session_state.setdefault("lesson-done", {})
    again = any(key[0] == number for key in done) and (number, choice) not in done
    if pressed or again:
        done[number, choice] = step.act(bench, choice)
    shown = done.get((number, choice))
    if shown is None:
        _map((_before(number, choice, bench),), key=f"map-{number}")
        return
    _told(shown)
    _pictures(shown, key=f"map-{number}")


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs={Bench: lambda bench: bench.shape})
def _before(number: int, choice: str, bench: Bench) -> Scene:
    """The pool before the action: the same for everybody."""
    return STEPS[number - 1].act(bench, choice).scenes[0]


def _questions(bench: Bench) -> None:
    page_title("Three questions")
    st.markdown("Set it up, answer, and the layout shows what happens.")
    right = [_question(number, question, bench) for number, question in enumerate(QUESTIONS, 1)]
    if all(right):
        st.success(END, title="All three are right")
    elif any(right):
        st.caption(f"{sum(right)} of {len(right)} are right.")


def _question(number: int, question: Question, bench: Bench) -> bool:
    """Was it answered right?"""
    st.markdown(f"**{number}.** {question.words}")
    here, there = st.columns([2, 5])
    with here:
        setting = st.segmented_control(
            question.setting,
            question.settings,
            default=question.settings[0],
            required=True,
            key=f"setting-{number}",
        )
    with there:
        given = st.radio(
            "Your answer", question.answers, index=None, horizontal=True, key=f"answer-{number}"
        )
    if given is None:
        return False
    right, shown = question.answer(bench, setting)
    if given == right:
        st.success(f"Right: {right}.")
    else:
        st.warning(f"Not {given}: it is {right}.")
    _told(shown)
    _pictures(shown, key=f"question-{number}")
    return given == right


def _told(shown: Shown) -> None:
    st.markdown("\n".join(f"- {line}" for line in shown.told), width=_TEXT)


def _pictures(shown: Shown, key: str) -> None:
    if shown.places is None:
        _map(shown.scenes, key=key, shown=shown)
    else:
        _places(shown, key)
    if shown.holes:
        figure = histogram({"contiguous": shown.scenes[-1].snapshot}, figure_theme(), ask=None)
        found = charts_said({"contiguous": shown.scenes[-1].snapshot}, None)
        _draw(figure, f"{key}-holes", found["holes"])
        st.caption("How many holes there are of each size, in bins of doubling size.")
    if shown.table is not None:
        st.table(shown.table, hide_index=True)
    if shown.check is not None:
        _checked(shown.check)


def _map(scenes: tuple[Scene, ...], key: str, shown: Shown | None = None) -> None:
    ask = shown.ask if shown else 0
    rows = [_row(scene) for scene in scenes]
    if ask:
        last = scenes[-1]
        rows[-1] = StripRow(last.label, last.snapshot.columns, last.names, ask)
    snapshot = scenes[-1].snapshot
    figure = lesson_map(
        rows,
        figure_theme(),
        capacity=snapshot.capacity,
        paged=snapshot.paged,
        moves=shown.moves if shown else (),
    )
    found = [map_said(scene.label, scene.snapshot) for scene in scenes[:-1]]
    found.append(map_said(scenes[-1].label, snapshot, ask))
    _draw(figure, key, f"The pool. {'. '.join(found)}.")
    st.caption(
        f"All {snapshot.capacity:,} slots of the pool, from left to right. A colour with a letter "
        "is a request; grey is free, with the size of the hole."
        + (" Pale: held, not written." if _held_only(scenes) else "")
        + (f" Dashed: where {ask:,} slots would have to lie." if ask else "")
        + (" Red lines: what was copied." if shown and shown.moves else "")
    )


def _held_only(scenes: tuple[Scene, ...]) -> bool:
    """Are there slots that a request holds and has not written?"""
    columns = [scene.snapshot.columns for scene in scenes]
    return any(bool(((c.owner != HOLE) & (c.used < c.size)).any()) for c in columns)


def _places(shown: Shown, key: str) -> None:
    name, slots = shown.places or ("", ())
    scene = shown.scenes[-1]
    figure = block_lines(
        name,
        next(id for id, known in scene.names.items() if known == name),
        np.array(slots, np.int64),
        _row(scene),
        figure_theme(),
        capacity=scene.snapshot.capacity,
        block=scene.snapshot.grain,
    )
    pieces = 1 + int((np.diff(slots) != 1).sum())
    _draw(figure, key, f"The blocks of {name}, in order, lie in {pieces} pieces all over the pool")
    st.caption(
        f"Above: the tokens of {name}, in order. Below: the pool, coloured as in the steps before; "
        f"a line leads from each block of {name} to where it lies."
    )


def _row(scene: Scene) -> StripRow:
    return StripRow(scene.label, scene.snapshot.columns, scene.names)


def _draw(figure: Figure, key: str, alt: str) -> None:
    st.plotly_chart(figure, theme=None, config=_CONFIG, key=key, alt=alt)


def _checked(check: Check) -> None:
    if check.equal and check.mapped:
        st.caption(
            f"Checked on the tensors: K and V of {check.slots:,} slots, all layers, read back "
            "equal to what was written, and the map rebuilt from the tensors is the one shown."
        )
    else:
        what = "K or V changed" if not check.equal else "the map is not the tensors'"
        st.error(f"The tensors disagree with the bookkeeping: {what}.")
