"""Every layout, live in a real browser on real tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Visit

Open = Callable[..., Visit]
PAIRS = [
    ("split", "scattered"),
    ("cells", "contiguous"),
    ("prefix", "virtual"),
    pytest.param("buddy", "tlsf", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_a_pair_of_lanes_is_drawn(left: str, right: str, visit: Open) -> None:
    """A layout that the page can't draw, or whose answers differ."""
    one = visit(f"/?left={left}&right={right}&rate=0.3&prefixed=0.5&output=24&speed=50")
    for lane in (left, right):
        one.until(f"() => document.querySelector('[data-kv=map-{lane}]')?.kvImage?.source", 60)
    one.until(
        "() => /outputs equal (\\d+)\\/\\1/.test(document.body.innerText) && "
        "/map = tensors at step/.test(document.body.innerText)",
        90,
    )
    assert one.errors == []


def test_another_layout_is_chosen(visit: Open) -> None:
    """The page keeps the old map, or the address does not follow."""
    one = visit()
    one.page.get_by_role("combobox", name="Right lane").click()
    one.page.get_by_role("option", name="virtual", exact=True).click()
    one.until("() => document.querySelector('[data-kv=map-virtual]')?.kvImage?.source", 60)
    assert "right=virtual" in one.page.url
    assert one.errors == []
