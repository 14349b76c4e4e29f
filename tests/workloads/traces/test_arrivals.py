"""What is done to the times and lengths of a trace is done to a copy, and said."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import TraceError
from kvviz.workloads.traces.arrivals import (
    cap_gaps,
    generate_arrivals,
    head,
    skip_quiet_head,
    spread_bins,
)
from kvviz.workloads.traces.describe import describe, table
from kvviz.workloads.traces.scaling import divisor, scale_to
from kvviz.workloads.traces.trace import Prefix, Trace


def trace(
    arrival: list[float] | None,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    ids: list[list[int]] | None = None,
) -> Trace:
    count = len(arrival or prompt or [])
    prefix = None
    if ids is not None:
        offsets = np.cumsum([0, *map(len, ids)])
        flat = [one for row in ids for one in row]
        prefix = Prefix(np.array(flat, dtype=np.int64), offsets, 512)
    return Trace(
        None if arrival is None else np.array(arrival, dtype=float),
        np.array(prompt or [10] * count),
        np.array(output or range(1, count + 1)),
        "plain",
        {"arrival": "s", "length": "tokens"},
        prefix,
    )


def test_gaps_are_capped() -> None:
    """Idle time stays, or a short gap is touched."""
    old = trace([5, 6, 106, 108, 308])
    new = cap_gaps(old, 10)
    assert new.arrival_s.tolist() == [5, 6, 16, 18, 28]
    assert new.notes[-1].startswith("2 idle gaps were cut to 10 s: 280.0 s (92% of the span)")
    assert old.arrival_s.tolist() == [5, 6, 106, 108, 308]
    assert old.notes == ()
    assert cap_gaps(old, 500).arrival_s is old.arrival_s


def test_bins_are_spread() -> None:
    """Ten requests at once every three seconds: they spread over their own bin only."""
    new = spread_bins(trace([0, 0, 0, 3, 5, 5, 20]), 3)
    assert new.arrival_s.tolist() == [0, 1, 2, 3, 5, 6.5, 20]
    assert "3 of 7 requests shared a stamp" in new.notes[-1]
    narrow = spread_bins(trace([0, 0, 1, 1]), 3)
    assert narrow.arrival_s.tolist() == [0, 0.5, 1, 2.5]
    assert spread_bins(trace([0, 1]), 3).arrival_s.tolist() == [0, 1]


times = st.lists(st.floats(0, 1000), min_size=1, max_size=30).map(sorted)


@given(times, st.floats(0.01, 50))
def test_order_and_first_arrival_stay(arrival: list[float], seconds: float) -> None:
    """A request overtakes another, or the trace moves."""
    for change in (cap_gaps, spread_bins, skip_quiet_head):
        new = change(trace(arrival), seconds)
        assert np.all(np.diff(new.arrival_s) >= 0)
        assert new.output.tolist() == list(range(len(arrival) + 1 - new.rows, len(arrival) + 1))
        assert len(new.notes) == 1
    assert cap_gaps(trace(arrival), seconds).arrival_s[0] == arrival[0]
    assert np.diff(cap_gaps(trace(arrival), seconds).arrival_s).max(initial=0) <= seconds + 1e-9


def test_quiet_head_is_skipped() -> None:
    """BurstGPT's first days have a hundredth of the later rate: nothing to see for hours."""
    quiet = [0, 1800, 1801, 3500]
    busy = list(range(3600, 7200, 2))
    new = skip_quiet_head(trace([*quiet, *busy]), 60)
    assert new.arrival_s.tolist() == busy
    assert new.notes[-1].startswith("4 requests of a quiet head of 3,600 s")
    assert skip_quiet_head(new, 60).rows == len(busy)
    assert skip_quiet_head(trace([0.0]), 60).rows == 1


def test_head_takes_the_ids_along() -> None:
    """The first rows come with the ids of others."""
    old = trace([0, 1, 2], ids=[[1, 2], [], [3]])
    assert head(old, 2).prefix.ids.tolist() == [1, 2]
    assert head(old, 2).prefix.offsets.tolist() == [0, 2, 2]
    assert head(old, 2).notes == ("The first 2 of 3 requests.",)
    assert head(old, 9).rows == 3


def test_generated_arrivals() -> None:
    """Another rate or burstiness than was asked for; the same seed gives other times."""
    old = trace(None, [5] * 20_000)
    for burstiness in (0, 0.5, 1, 3):
        new = generate_arrivals(old, 4, burstiness, 7)
        gaps = np.diff(new.arrival_s)
        assert 1 / gaps.mean() == pytest.approx(4, rel=0.06)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.06)
        assert new.units["arrival"] == "s (generated)"
        assert "generated: 4 requests a second" in new.notes[-1]
    assert np.array_equal(new.arrival_s, generate_arrivals(old, 4, 3, 7).arrival_s)
    assert "in place of those of the file" in generate_arrivals(new, 1).notes[-1]


def test_scaling_says_what_it_did() -> None:
    """Lengths are divided, raised or cut without a word."""
    old = trace(None, [1000, 100, 3, 4000], [100, 2, 40, 900])
    new = scale_to(old, 512, 4)
    assert new.prompt.tolist() == [250, 25, 1, 512 - 225 + 1]
    assert new.output.tolist() == [25, 1, 10, 225]
    assert new.notes[-1] == (
        "Context 512: lengths of 4 of 4 requests divided by 4, 1 with a length raised to 1 token, "
        "1 cut."
    )
    same = scale_to(old, 8192)
    assert same.prompt.tolist() == old.prompt.tolist()
    assert (
        "0 of 4 requests divided by 1, 0 with a length raised to 1 token, 0 cut" in same.notes[-1]
    )


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), min_size=1, max_size=20),
    st.integers(2, 4096),
    st.sampled_from([0, 1, 2, 64]),
)
def test_every_scaled_request_fits(
    lengths: list[tuple[int, int]], context: int, divide: int
) -> None:
    """A request that can't be served, or a hash id past the end of its prompt."""
    ids = [list(range(-(-prompt // 512))) for prompt, _ in lengths]
    old = trace(None, [p for p, _ in lengths], [o for _, o in lengths], ids)
    new = scale_to(old, context, divide)
    assert new.prompt.min() >= 1
    assert new.output.min() >= 1
    assert (new.prompt + new.output - 1).max() <= context
    if new.prefix is not None:
        counts = np.diff(new.prefix.offsets)
        assert np.all(counts <= -(-new.prompt // new.prefix.block))
        assert all(new.prefix.of(k).tolist() == list(range(n)) for k, n in enumerate(counts))


def test_divisor_brings_the_tail_under_the_context() -> None:
    """The divisor is no power of two, or leaves the 99th percentile above."""
    old = trace(None, [4000] * 100, [259] * 100)
    assert [divisor(old, context) for context in (8192, 4259, 4258, 2048)] == [1, 1, 2, 4]


def test_hash_blocks_shrink_with_the_lengths() -> None:
    """512-token blocks of prompts a sixteenth as long are 32 tokens; half a token is none."""
    old = trace(None, [1024, 600], [5, 5], [[1, 2], [1, 3]])
    new = scale_to(old, 4096, 16)
    assert new.prefix.block == 32
    assert new.units["hash_id"] == "32 tokens"
    assert [new.prefix.of(k).tolist() for k in (0, 1)] == [[1, 2], [1, 3]]
    none = scale_to(old, 4096, 1024)
    assert none.prefix is None
    assert "can't be divided by 1024: dropped" in none.notes[-1]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: cap_gaps(t, 0),
        lambda t: cap_gaps(t, float("nan")),
        lambda t: spread_bins(t, -1),
        lambda t: skip_quiet_head(t, 0),
        lambda t: skip_quiet_head(t, 1e-9),
        lambda t: head(t, 0),
        lambda t: generate_arrivals(t, 0),
        lambda t: generate_arrivals(t, float("inf")),
        lambda t: generate_arrivals(t, 1, -1),
        lambda t: scale_to(t, 1),
        lambda t: cap_gaps(trace(None, [1]), 1),
        lambda t: spread_bins(trace(None, [1]), 1),
        lambda t: skip_quiet_head(trace(None, [1])),
    ],
)
def test_what_can_not_be_done_is_refused(change: Callable[[Trace], Trace]) -> None:
    """A wrong number ends in a traceback, or does nothing."""
    with pytest.raises(TraceError, match="expected|needed|generate them|longer one"):
        change(trace([0, 5]))


def test_columns_can_not_be_written() -> None:
    """Two pages share a trace, and one changes it under the other."""
    found = trace([0, 1])
    with pytest.raises(ValueError, match="read-only"):
        found.prompt[0] = 5


def test_description() -> None:
    """The numbers of the table are not those of the rows."""
    found = describe(trace([0, 1, 3, 3], [10, 20, 30, 40], [1, 2, 3, 4], [[1], [1], [2], [1]]))
    assert (found["rows"], found["set_aside"]) == (4, 0)
    assert (found["prompt_tokens"], found["output_tokens"], found["span_s"]) == (100, 10, 3.0)
    assert found["prompt"]["p50"] == 25
    assert found["total"]["max"] == 44
    assert found["arrivals"]["rate"] == 1
    assert found["arrivals"]["same_stamp"] == 1
    assert found["prefix"] == {"block_tokens": 512, "blocks": 4, "distinct": 2, "shared": 0.5}
    text = table(found)
    for word in ("rows           4", "1 requests/s", "50.0% seen before", "25"):
        assert word in text
    bare = describe(trace(None, [10]))
    assert bare["arrivals"] is bare["prefix"] is bare["span_s"] is None
    assert "gaps" not in table(bare)
