"""The ring of steps gives back the newest rows, however they are asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvviz.engine.recorder import FIELDS, Recorder


@given(
    room=st.integers(1, 90),
    steps=st.integers(0, 200),
    last=st.none() | st.integers(0, 120),
    before=st.none() | st.integers(0, 220),
)
def test_series_against_a_list(room: int, steps: int, last: int | None, before: int | None) -> None:
    """A plot of the past would show steps that came later, miss some, or be shifted by a turn of
    the ring."""
    recorder = Recorder(steps=room)
    rows = [tuple(step * 10 + at for at in range(len(FIELDS))) for step in range(steps)]
    for step, row in enumerate(rows):
        recorder.add((step, *row[1:]), [])
    kept = list(range(steps))[-room:]
    wanted = kept if before is None else [step for step in kept if step < before]
    if last is not None:
        wanted = wanted[len(wanted) - min(last, len(wanted)) :]
    found = recorder.series(last, before)
    assert found.step.tolist() == wanted
    assert found.need.tolist() == [rows[step][-1] for step in wanted]
    if wanted:
        assert found.dropped == wanted[0]
