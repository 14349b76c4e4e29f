"""A page that is left open: how large its renderer is."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Visit

MINUTES = float(os.environ.get("KVVIZ_MINUTES", "2"))
WARM_SECONDS = 45
EVERY_SECONDS = 5
GROWTH_MB = 20


def _renderers(browser: Browser) -> set[int]:
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return {int(process["id"]) for process in found if process["type"] == "renderer"}


def _resident_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_a_page_left_open_stays_as_large_as_it_is(
    visit: Callable[..., Visit], browser: Browser
) -> None:
    """Each frame leaves a picture, a listener or a node behind: a tab left open overnight dies."""
    before = _renderers(browser)
    one = visit("/")
    page = one.page.context.new_cdp_session(one.page)
    one.page.wait_for_timeout(WARM_SECONDS * 1000)
    process = max(_renderers(browser) - before, key=_resident_mb)  # the browser keeps a spare one
    frames, resident, heap = int(str(one.probe("frames"))), [], []
    for _ in range(max(6, int(MINUTES * 60 / EVERY_SECONDS))):
        one.page.wait_for_timeout(EVERY_SECONDS * 1000)
        page.send("HeapProfiler.collectGarbage")
        heap.append(page.send("Runtime.getHeapUsage")["usedSize"] / 1e6)
        resident.append(_resident_mb(process))
    third = len(heap) // 3
    grown = {
        name: statistics.median(sizes[-third:]) - statistics.median(sizes[:third])
        for name, sizes in (("resident", resident), ("heap", heap))
    }
    told = (
        f"{int(str(one.probe('frames'))) - frames} frames in {MINUTES:g} minutes; resident "
        f"{min(resident):.0f} to {max(resident):.0f} MB, heap {min(heap):.1f} to {max(heap):.1f}, "
        f"median of the last third less that of the first: {grown}"
    )
    print(told)
    assert max(grown.values()) < GROWTH_MB, told
    assert one.errors == []
