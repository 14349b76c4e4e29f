"""Who gives way when a running sequence needs more memory than is free."""

from __future__ import annotations

from collections.abc import Callable

from kvviz.engine.sequence import Sequence

Choice = Callable[[list[Sequence]], Sequence]


def youngest(running: list[Sequence]) -> Sequence:
    """Admitted last: it loses the least work, and the oldest always gets through."""
    return running[-1]


def oldest(running: list[Sequence]) -> Sequence:
    return running[0]


def priority(running: list[Sequence]) -> Sequence:
    """The youngest of the lowest priority."""
    lowest = min(sequence.request.priority for sequence in running)
    return next(s for s in reversed(running) if s.request.priority == lowest)


CHOICES: dict[str, Choice] = {"youngest": youngest, "oldest": oldest, "priority": priority}
