"""The steps behind one that a run was brought to: it is made again for them, in small portions.

Running to a step is cheap, keeping every step on the way is not. So a link's picture comes first,
and what can be looked back at follows while nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.live.past import Past


class Earlier:
    """Makes steps [first, end) of a dry run with these settings. Belongs to one thread."""

    def __init__(
        self, build: Callable[[RunConfig], Lanes], config: RunConfig, first: int, end: int
    ) -> None:
        self.first, self.end = first, end
        self._lanes = build(config)
        self.past = Past(list(self._lanes.engines))

    @property
    def done(self) -> bool:
        return self.past.last == self.end - 1

    def work(self, seconds: float) -> bool:
        """Go on for about so long. True when all is there."""
        until = time.monotonic() + seconds
        lanes = self._lanes
        while not self.done and time.monotonic() < until:
            if lanes.step_count >= self.first:
                self.past.add(lanes)
            lanes.step()
        if self.done:
            lanes.close()
        return self.done
