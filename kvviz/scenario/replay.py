"""Replays a scenario: the report, and the pictures of some of its operations or steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvviz.scenario.memory import Frame
from kvviz.scenario.ops import OpsReplay
from kvviz.scenario.parts import Scenario
from kvviz.scenario.requests import RequestsReplay


def replay(scenario: Scenario) -> OpsReplay | RequestsReplay:
    """Ready to run, once. Raises ScenarioError when the layout refuses its settings."""
    return OpsReplay(scenario) if scenario.ops is not None else RequestsReplay(scenario)


def report(scenario: Scenario) -> dict[str, Any]:
    """Plain values, the same for the command line, the page and the tests."""
    return headed(scenario, replay(scenario).report())


def headed(scenario: Scenario, told: dict[str, Any]) -> dict[str, Any]:
    """A replay's report with what was replayed before it."""
    settings = scenario.config.as_dict().get(scenario.layout, {})
    return {
        "title": scenario.title,
        "story": scenario.story,
        "kind": scenario.kind,
        "capacity": scenario.config.memory.slots,
        "layout": {"kind": scenario.layout, **settings},
        **told,
    }


def frames(scenario: Scenario, first: int, last: int) -> Iterator[Frame]:
    """Maps after operations, or steps, [first, last) from 0. The replay is run up to there: it
    is exact, so that nothing needs to be kept."""
    return replay(scenario).frames(first, last)
