"""`streamlit`, but the paged lane of a run with seed 666 gets a NaN into its cache at step 30."""

from __future__ import annotations

import sys

from streamlit.web.cli import main

import kvviz.build
import kvviz.live.hub
from kvviz.build import Backend
from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes

BAD_SEED, AT_STEP = 666, 30


def build_lanes(config: RunConfig, backend: Backend | None) -> Lanes:
    lanes = kvviz.build.build_lanes(config, backend)
    if config.seed != BAD_SEED:
        return lanes
    paged = lanes.engines["paged"]
    step = paged.step

    def faulty() -> None:
        if paged.step_count == AT_STEP:
            request = paged.scheduler.running[0].request.id
            paged.forward.store.view[0, 0, int(paged.layout.slots(request)[1])] = float("nan")
        step()

    paged.step = faulty
    return lanes


if __name__ == "__main__":
    kvviz.live.hub.build_lanes = build_lanes
    sys.exit(main())
