"""The soak's short form, and that it finds what it is for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from kvviz.build import Backend, build_lanes
from kvviz.cli import main
from kvviz.config import LANES, RunConfig, parse_overrides
from kvviz.engine.engine import Engine
from kvviz.engine.lanes import Lanes
from kvviz.soak.command import text
from kvviz.soak.draw import draw, set_line
from kvviz.soak.memory import FEWEST, growth, resident_bytes
from kvviz.soak.soak import MOST_GROWTH, Report, run_soak
from kvviz.soak.watch import CHECKS

AT = 12  # the step in which something is done to a lane


def test_a_round_is_fixed_by_seed_and_number() -> None:
    """A failure could not be run again."""
    assert draw(3, 5) == draw(3, 5)
    assert draw(3, 5) != draw(3, 6) != draw(4, 5)


def test_all_is_drawn() -> None:
    """A layout or a policy would never be run."""
    rounds = [draw(1, number) for number in range(60)]
    assert {name for plan in rounds for name in plan.config.lane_names} == set(LANES)
    every = [config for plan in rounds for config in (plan.config, *plan.changes.values())]
    for path, _, meta in RunConfig().walk():
        if meta["choices"] and path not in ("cells.mode", "cells.placement", "mix.outputs"):
            missed = set(meta["choices"]) - {dict_of(c)[path] for c in every} - {"trace"}
            assert not missed, (path, missed)
    for config in every[1:]:
        assert config != RunConfig()


def test_changes_need_no_restart() -> None:
    for number in range(20):
        plan = draw(2, number)
        for config in plan.changes.values():
            assert plan.config.differences(config)[1] == []
        last = max(plan.changes)
        assert plan.at(last) == plan.at(plan.steps) == plan.changes[last]
        assert plan.at(0) == plan.config


def test_the_line_gives_the_settings_back() -> None:
    """What is printed of a failure would run something else."""
    for number in range(20):
        config = draw(1, number).config
        assert RunConfig().replace(parse_overrides(set_line(config).split())) == config


def test_a_few_rounds_hold(backend: Backend) -> None:
    one, two = sorted(range(60), key=cost)[:2]
    told: list[int] = []
    report = run_soak(
        backend, math.inf, 1, numbers=[one, two], told=lambda r: told.append(r.rounds)
    )
    assert report.failures == [] and report.holds
    assert told == [1, 2] and len(report.resident) == 2
    assert report.steps == draw(1, one).steps + draw(1, two).steps
    assert report.invariants == CHECKS * sum(report.lane_steps.values()) > 1000
    served = {*draw(1, one).config.lane_names, *draw(1, two).config.lane_names}
    assert set(report.lane_steps) == served
    assert report.map_checks > 20 and report.outputs_compared > 0
    assert report.frames > 0 and report.frame_bytes > 1000 * report.frames
    assert backend.budget.used_bytes == 0


def cost(number: int) -> int:
    plan = draw(1, number)
    return plan.steps * len(plan.config.lane_names)


def drop_a_block(engine: Engine) -> None:
    engine.layout._pool.refs[-1] += 1


def lose_a_request(engine: Engine) -> None:
    engine.scheduler.ledger.arrived += 1


def leave_a_mark(engine: Engine) -> None:
    engine.checks_failed += 1


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (drop_a_block, "a holder"),
        (lose_a_request, "paged: arrived = waiting + running + finished + dropped does not hold"),
        (leave_a_mark, "paged: map and tensors differ"),
    ],
)
def test_a_fault_is_found_at_its_step(
    act: Callable[[Engine], None], words: str, backend: Backend
) -> None:
    """It would run for a night, and prove nothing."""
    number = next(n for n in range(99) if "paged" in draw(1, n).config.lane_names)

    def build(config: RunConfig, backend: Backend) -> Lanes:
        lanes = build_lanes(config, backend)
        paged = lanes.engines["paged"]
        step = paged.step

        def faulty() -> None:
            step()
            if paged.step_count == AT + 1:
                act(paged)

        paged.step = faulty
        return lanes

    report = run_soak(backend, math.inf, 1, numbers=[number], build=build)
    (failure,) = report.failures
    assert (failure.round, failure.step, report.holds) == (number, AT, False)
    assert words in failure.error
    assert failure.settings == set_line(draw(1, number).config)
    assert failure.again.endswith(f"soak --seed 1 --round {number}")
    assert backend.budget.used_bytes == 0
    assert "DOES NOT HOLD" in text(report.as_dict())


def test_growth_is_told_from_noise() -> None:
    assert growth([100] * (FEWEST - 1)) is None
    assert growth([50, 80, 100] + [100, 101] * 20) == pytest.approx(0.0, abs=0.01)
    assert growth(list(range(1000, 1100))) > MOST_GROWTH
    assert not Report(1, resident=list(range(1000, 1100))).holds
    assert resident_bytes() > 1 << 20


def test_the_command(tmp_path, capsys) -> None:
    """`python -m kvviz soak` for a second: its status, its table, its JSON."""
    where = tmp_path / "soak.json"
    assert main(["soak", "--minutes", "0.01", "--seed", "2", "--json", str(where)]) == 0
    said = capsys.readouterr().out
    told = json.loads(where.read_text())
    assert told["holds"] and told["failures"] == [] and told["steps"] > 0
    for words in ("resident memory", "invariants checked", "frames made", "failures", "holds"):
        assert words in said


@pytest.mark.parametrize("words", [["--minutes", "0"], ["--minutes", "nan"], ["--seed", "-1"]])
def test_bad_words_are_refused(words: list[str], capsys) -> None:
    assert main(["soak", *words]) == 2
    assert "expected" in capsys.readouterr().err or words[0] == "--minutes"


def dict_of(config: RunConfig) -> dict:
    return {path: value for path, value, _ in config.walk()}
