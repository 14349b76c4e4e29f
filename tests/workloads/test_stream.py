"""The stream as its lanes see it: who gets what when, and what a new mix changes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.build import build_lanes
from kvviz.config import ARRIVALS, Mix
from kvviz.errors import ConfigError
from kvviz.records import Request
from kvviz.workloads.stream import RequestStream
from tests.helpers import events, run_steps, small

CONTEXT = 256
mixes = st.builds(
    Mix,
    arrivals=st.sampled_from(ARRIVALS),
    rate=st.sampled_from([0.05, 0.7, 5.0]),
    burst=st.sampled_from([1, 4]),
    concurrency=st.sampled_from([1, 7]),
    prompts=st.sampled_from(["lognormal", "uniform", "fixed", "trace"]),
    outputs=st.sampled_from(["lognormal", "uniform", "fixed", "trace"]),
    prompt_mean=st.sampled_from([1, 40, 300]),
    output_mean=st.sampled_from([1, 30, 400]),
    spread=st.sampled_from([0.0, 0.8, 4.0]),
    long_share=st.sampled_from([0.0, 0.2, 1.0]),
    long_prompt=st.sampled_from([1, 1000]),
    trace=st.just("azure-chat-2023"),
)
seeds = st.integers(0, 50)


def taken_until(
    stream: RequestStream, steps: int, cursor: int = 0, begin: int = 0
) -> list[Request]:
    """Requests of one lane in steps [begin, steps) that never finishes anything before five."""
    taken: list[Request] = []
    for step in range(begin, steps):
        taken += stream.take(cursor + len(taken), step, min(len(taken), 5))
    return taken


def first(stream: RequestStream, count: int) -> list[Request]:
    """Take one at a time: at the step of its own arrival."""
    taken: list[Request] = []
    step = 0
    while len(taken) < count:
        taken += stream.take(len(taken), step, 0)
        step += 1
    return taken[:count]


def body(request: Request) -> tuple[int, ...]:
    """All of a request but its time of arrival."""
    return (request.id, request.prompt_len, request.output_len, request.limit, request.text)


@given(mixes, seeds)
def test_every_request_can_be_served(mix: Mix, seed: int) -> None:
    """A request is empty, outlives the context, or may ask for less than it will generate."""
    for request in taken_until(RequestStream(mix, CONTEXT, seed), 40)[:200]:
        assert request.prompt_len >= 1
        assert request.output_len >= 1
        assert request.life <= CONTEXT
        assert request.output_len <= request.limit == CONTEXT - request.prompt_len + 1


@given(mixes, seeds, st.integers(1, 30))
def test_lanes_see_the_same_requests(mix: Mix, seed: int, late: int) -> None:
    """A lane that takes them later, or in another rhythm, gets other requests."""
    stream, alone = RequestStream(mix, CONTEXT, seed), RequestStream(mix, CONTEXT, seed)
    mine = taken_until(stream, 40)
    other = taken_until(stream, 40 + late)
    assert [body(r) for r in mine] == [body(r) for r in taken_until(alone, 40)]
    assert other[: len(mine)] == mine
    assert [r.id for r in other] == list(range(len(other)))


def test_hash_is_of_every_request_taken() -> None:
    """The hash leaves out some requests, counts one twice when a second lane takes it, or counts
    those that are drawn ahead: two streams that differ would pass for one."""
    stream = RequestStream(Mix(rate=3), CONTEXT, 1)
    fast = taken_until(stream, 50)
    taken_until(stream, 30)
    expected = hashlib.sha256("".join(repr(r) for r in fast).encode()).hexdigest()
    assert stream.hash == expected[:16]


@given(mixes, mixes, seeds)
def test_new_mix_equals_a_fresh_stream_from_there_on(old: Mix, new: Mix, seed: int) -> None:
    """A slider changes requests that had arrived, or the luck of those still to come.

    Request k is then what a stream with the new mix from the start has as request k; the gaps
    between arrivals are the same, counted from the step of the change.
    """
    stream, fresh = RequestStream(old, CONTEXT, seed), RequestStream(new, CONTEXT, seed)
    before = taken_until(stream, 20)
    stamp = stream.hash
    stream.reconfigure(new)
    stream.redraw(len(before), 20)
    assert stream.hash == stamp
    after = taken_until(stream, 60, cursor=len(before), begin=20)
    untouched = taken_until(RequestStream(old, CONTEXT, seed), 20)
    assert untouched == before
    expected = expected_from(fresh, len(before), len(after))
    assert [body(r) for r in after] == [body(r) for r in expected]
    assert all(r.arrival >= 20 or r.arrival == -1 for r in after)


def expected_from(fresh: RequestStream, begin: int, count: int) -> list[Request]:
    """Requests [begin, begin + count) of a stream, whatever their arrivals."""
    return [fresh._get(index) for index in range(begin, begin + count)]


def test_gaps_after_a_change_are_those_of_the_new_rate() -> None:
    """Steady at 0.5 from step 100 on: the first after two steps, then every second one."""
    stream = RequestStream(Mix(arrivals="steady", rate=0.1), CONTEXT, 1)
    before = taken_until(stream, 100)
    stream.reconfigure(Mix(arrivals="steady", rate=0.5))
    stream.redraw(len(before), 100)
    after = taken_until(stream, 110, cursor=len(before), begin=100)
    assert [r.arrival for r in after] == [102, 104, 106, 108]


def test_live_mix_leaves_arrived_requests_alone() -> None:
    """Two dry runs, one with a new mix at step 100: everything up to there is the same, both
    lanes get the same afterwards, and the change is in the log."""
    run = small({"dry": True})
    changed, control = build_lanes(run), build_lanes(run)
    run_steps(changed, 100)
    changed.reconfigure(run.replace({"mix.prompt_mean": 60, "mix.rate": 0.8}))
    run_steps(changed, 60)
    run_steps(control, 160)
    arrivals = {n: events(e, "arrive") for n, e in changed.engines.items()}
    assert arrivals["contiguous"] == arrivals["paged"]
    mine = arrivals["paged"]
    theirs = events(control.engines["paged"], "arrive")
    assert [e for e in mine if e.step < 100] == [e for e in theirs if e.step < 100]
    assert sum(e.step >= 100 for e in mine) > 30 > sum(e.step >= 100 for e in theirs)
    assert [e.text for e in events(changed.engines["paged"], "change")] == [
        "mix.rate, mix.prompt_mean"
    ]


@pytest.mark.parametrize("arrivals", ["poisson", "bursts", "steady", "trace"])
def test_mean_rate(arrivals: str) -> None:
    """Bursts or luck change the load: 3,000 requests at 0.5 a step take about 6,000 steps."""
    mix = Mix(arrivals=arrivals, rate=0.5, burst=8, trace="azure-chat-2023")
    assert first(RequestStream(mix, CONTEXT, 3), 3000)[-1].arrival == pytest.approx(6000, rel=0.1)


def test_lengths_of_the_stream_keep_their_means() -> None:
    """Rounding or the order of the random numbers shifts the mix: means within 4 %."""
    mix = Mix(rate=8, prompt_mean=60, output_mean=30, spread=0.5, long_share=0)
    taken = first(RequestStream(mix, 1 << 14, 5), 4000)
    assert sum(r.prompt_len for r in taken) / 4000 == pytest.approx(60, rel=0.04)
    assert sum(r.output_len for r in taken) / 4000 == pytest.approx(30, rel=0.04)


def test_share_of_long_prompts() -> None:
    """A share of 0.1 gives another share."""
    mix = Mix(rate=8, prompts="fixed", prompt_mean=10, long_share=0.1, long_prompt=99)
    taken = first(RequestStream(mix, 1 << 14, 5), 4000)
    assert {r.prompt_len for r in taken} == {10, 99}
    assert sum(r.prompt_len == 99 for r in taken) / 4000 == pytest.approx(0.1, abs=0.02)


def test_clipped_is_the_number_of_cut_requests() -> None:
    """The page tells another share of cut requests than were cut."""
    mix = Mix(rate=8, prompts="fixed", prompt_mean=10, outputs="fixed", output_mean=9,
              long_share=0.3, long_prompt=999)  # fmt: skip
    stream = RequestStream(mix, CONTEXT, 2)
    taken = first(stream, 300)
    cut = [r for r in expected_from(stream, 0, stream.drawn) if r.prompt_len != 10]
    assert (stream.scaling.clipped, stream.scaling.of) == (len(cut), stream.drawn)
    assert 0 < len(cut) < len(taken)


def test_clipped_after_a_new_mix() -> None:
    """All requests are cut, so clipped equals the requests drawn, however often the mix changes."""
    mix = Mix(rate=8, long_share=1, long_prompt=999)
    stream = RequestStream(mix, CONTEXT, 2)
    taken = 0
    for step in range(20):
        taken += len(stream.take(taken, step, 0))
        stream.reconfigure(replace(mix, rate=mix.rate + step))
        stream.redraw(taken, step)
    assert stream.scaling.clipped == stream.scaling.of


def test_scaling_counts_what_was_divided_and_raised() -> None:
    """The page tells of other requests than those that were changed."""
    mix = Mix(rate=8, prompts="trace", outputs="trace", trace="mooncake-chat", long_share=0.3,
              long_prompt=9, divide=64)  # fmt: skip
    stream = RequestStream(mix, 1 << 15, 2)
    first(stream, 600)
    fitted = stream._fitted
    assert fitted is not None
    raised = 0
    for index in range(stream.drawn):
        u = stream._uniform(index)
        output = fitted.output(fitted.correlate(u[1], u[2])) / 64
        raised += round(output) < 1  # prompts have at least 891 tokens, 14 of which stay
    scaling = stream.scaling
    assert (scaling.divided, scaling.of) == (stream.drawn, stream.drawn)
    assert scaling.raised == raised > 10
    lone = RequestStream(replace(mix, outputs="fixed"), 1 << 15, 2)
    first(lone, 600)
    assert lone.scaling.divided == sum(lone._uniform(k)[3] >= 0.3 for k in range(lone.drawn))
    assert lone.scaling.raised == 0


@given(seeds, st.lists(st.integers(0, 9), min_size=1, max_size=5))
@settings(max_examples=25)
def test_scaling_forgets_what_is_drawn_anew(seed: int, steps: list[int]) -> None:
    """Requests that were divided or raised, dropped, and drawn under another mix still count."""
    fitted = Mix(rate=9, prompts="trace", outputs="trace", trace="mooncake-chat", long_share=0)
    fixed = Mix(rate=9, prompts="fixed", outputs="fixed", prompt_mean=5, output_mean=5)
    stream = RequestStream(fitted, 128, seed)
    taken = now = divided = 0
    for more in steps:
        for mix in (fitted, fixed):
            stream.reconfigure(mix)
            stream.redraw(taken, now)
            assert stream.scaling.divided == divided
            now += more
            fresh = len(stream.take(taken, now, 0))
            taken += fresh
            divided += fresh * (mix is fitted)
            stream.forget(taken)
    assert stream.scaling.raised <= divided


def test_gaps_of_a_trace_are_those_of_poisson_where_it_has_none() -> None:
    """A mix without arrivals ends the run, or its luck is another than Poisson's."""
    poisson = Mix(rate=0.3, trace="sharegpt-chat")
    a, b = (RequestStream(replace(poisson, arrivals=k), CONTEXT, 5) for k in ("poisson", "trace"))
    assert [r.arrival for r in first(a, 300)] == [r.arrival for r in first(b, 300)]


def test_bursty_mix_comes_and_goes() -> None:
    """azure-code-2023: most of the time nothing arrives, then very much."""
    mix = Mix(arrivals="trace", rate=0.5, trace="azure-code-2023")
    gaps = [b.arrival - a.arrival for a, b in pairwise(first(RequestStream(mix, CONTEXT, 5), 3000))]
    assert sum(gap for gap in gaps if gap > 20) > 0.5 * sum(gaps)
    assert sum(gap == 0 for gap in gaps) > 1500


def test_unknown_trace_leaves_the_old_mix() -> None:
    """A refused setting breaks the run that it was refused for."""
    stream = RequestStream(Mix(), CONTEXT, 1)
    with pytest.raises(ConfigError, match="azure-chat-2023"):
        stream.reconfigure(Mix(prompts="trace", trace="nope"))
    assert stream.mix == Mix()
    assert first(stream, 30) == first(RequestStream(Mix(), CONTEXT, 1), 30)


def test_trace_ties_outputs_to_prompts_only_if_both_are_of_it() -> None:
    """A prompt from another distribution is correlated with the trace's output."""
    both = Mix(prompts="trace", outputs="trace", trace="azure-chat-2023", long_share=0)
    one = replace(both, prompts="fixed")
    a, b = (first(RequestStream(m, 1 << 14, 4), 50) for m in (both, one))
    assert [r.output_len for r in a] != [r.output_len for r in b]
    assert {r.prompt_len for r in b} == {both.prompt_mean}


def test_divide_shortens_the_trace() -> None:
    """divide = 4 leaves the lengths as they are, or another factor is taken than is told."""
    whole = Mix(prompts="trace", trace="azure-chat-2023", long_share=0, divide=1)
    streams = [RequestStream(replace(whole, divide=d), 1 << 15, 4) for d in (1, 4)]
    a, b = (first(stream, 100) for stream in streams)
    assert [s.scaling.divide for s in streams] == [1, 4]
    assert [r.prompt_len for r in b] == [max(1, round(p)) for p in _quarters(a, whole)]


def _quarters(taken: list[Request], mix: Mix) -> list[float]:
    """Quarters of the exact lengths that the whole stream rounds."""
    stream = RequestStream(mix, 1 << 15, 4)
    row = stream._fitted.row(0)
    exact = [stream._length("trace", row, stream._uniform(r.id)[1], 0, "prompt") for r in taken]
    assert [max(1, round(p)) for p in exact] == [r.prompt_len for r in taken]
    return [p / 4 for p in exact]


def test_closed_loop_paces_by_each_lane() -> None:
    """A slow lane holds up a fast one, or gets more than its concurrency."""
    run = small({"dry": True, "mix.arrivals": "closed", "mix.concurrency": 6})
    built = build_lanes(run)
    for _ in range(200):
        built.step()
        assert all(engine.outstanding <= 6 for engine in built.engines.values())
    arrived = [engine.counters().arrived for engine in built.engines.values()]
    assert min(arrived) > 20


def test_forgotten_requests_are_never_asked_for_again() -> None:
    """A long run keeps all requests, or loses some that a lane still needs."""
    built = build_lanes(small({"dry": True, "mix.rate": 5.0, "engine.queue_limit": 8}))
    run_steps(built, 400)
    assert built.stream.drawn > 1500
    assert len(built.stream._requests) < 600
    assert [e.request for e in events(built.engines["paged"], "arrive")][-1] < built.stream.drawn
