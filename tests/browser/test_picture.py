"""Pictures made in the viewer's browser, and the report opened from disk without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from kvviz.html.document import report
from kvviz.recording.files import unpack
from tests.browser.conftest import Visit
from tests.recording.made import recorded

Open = Callable[..., Visit]
SIZE = """() => {
  const root = document.querySelector('.kv').getBoundingClientRect();
  const stamp = document.querySelector('[data-kv=stamp]').getBoundingClientRect();
  return [Math.ceil(root.width) + 32, Math.ceil(stamp.bottom - root.top) + 72];
}"""
BOX = """(name) => {
  const root = document.querySelector('.kv').getBoundingClientRect();
  const box = document.querySelector(`[data-kv=${name}]`).getBoundingClientRect();
  return [box.left - root.left + 16, box.top - root.top + 56, box.width, box.height];
}"""


def saved(page: Page, act: Callable[[], object], path: Path) -> np.ndarray:
    """The picture that the click downloads, uint8 [height, width, 3]."""
    with page.expect_download(timeout=60_000) as download:
        act()
    assert download.value.suggested_filename.endswith(".png")
    download.value.save_as(path)
    return np.asarray(Image.open(path).convert("RGB"))


def colours(pixels: np.ndarray) -> int:
    return len(np.unique(pixels.reshape(-1, 3), axis=0))


def part(picture: np.ndarray, box: list[float]) -> np.ndarray:
    x, y, width, height = (round(2 * value) for value in box)
    return picture[y : y + height, x : x + width]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_one_click_gives_the_whole_view(visit: Open, artifacts: Path, scheme: str) -> None:
    """The picture would be blank, small, in the wrong colours, or without its stamp."""
    one = visit(color_scheme=scheme)
    one.until("() => window.__kvviz.step > 60", 90)
    one.page.get_by_role("button", name="Pause").click()
    one.until("() => window.__kvviz.state === 'paused'")
    one.page.wait_for_function("() => document.querySelector('[data-kv=bytes]').data.length > 3")
    width, height = one.page.evaluate(SIZE)
    button = one.page.get_by_role("button", name="Picture")
    picture = saved(one.page, button.click, artifacts / f"picture-{scheme}.png")
    assert picture.shape == (2 * height, 2 * width, 3)
    assert (picture[2, 2].mean() < 60) == (scheme == "dark")
    for name in ("map-contiguous", "map-paged", "time", "size", "holes", "bytes"):
        assert colours(part(picture, one.page.evaluate(BOX, name))) > 12, name
    for name in ("verdict", "stamp", "lane-contiguous"):
        assert colours(part(picture, one.page.evaluate(BOX, name))) > 8, name
    assert colours(picture[16:80, 32:600]) > 8
    stamp = one.text("stamp")
    for said in ("kvviz 0.", "seed 1", "| step ", "CPU", "http://localhost"):
        assert said in stamp
    assert one.errors == []
    assert one.foreign == []
    one.until("() => window.__kvviz.picture && window.__kvviz.picture.ms > 0")
    print(f"{scheme}: {one.probe('picture')}")


@pytest.mark.parametrize("name", ["map-paged", pytest.param("time", marks=pytest.mark.long)])
def test_each_figure_has_its_camera(visit: Open, artifacts: Path, name: str) -> None:
    """A figure's own picture would be clear where the page is dark, and nobody could say of
    which run it is."""
    one = visit(color_scheme="dark")
    one.until("() => window.__kvviz.step > 30", 90)
    figure = one.page.locator(f"[data-kv={name}]")
    figure.hover()
    camera = figure.locator(".modebar-btn[data-title='Download plot as a PNG']")
    picture = saved(one.page, lambda: camera.click(force=True), artifacts / f"{name}.png")
    width = one.page.evaluate(
        "(name) => document.querySelector(`[data-kv=${name}]`).closest('.kv-card')"
        ".getBoundingClientRect().width",
        name,
    )
    assert picture.shape[1] == 2 * (int(np.ceil(width)) + 32)
    assert picture[2, 2].mean() < 60
    assert colours(picture) > 30
    assert colours(picture[-60:]) > 8  # the stamp
    assert one.errors == []


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report(unpack(recorded(300).data)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("scheme", "width", "height"),
    [
        ("light", 1440, 900),
        ("dark", 390, 844),
        pytest.param("dark", 1440, 900, marks=pytest.mark.long),
        pytest.param("light", 390, 844, marks=pytest.mark.long),
    ],
)
def test_the_report_works_offline(
    browser: Browser, report_file: Path, artifacts: Path, scheme: str, width: int, height: int
) -> None:
    """A colleague would open it and see white."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(report_file.as_uri(), timeout=90_000)
        page.wait_for_function("() => window.__kvviz_report?.drawn > 0", timeout=60_000)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        step = page.inner_text("#step")
        page.locator("#slider").focus()
        page.keyboard.press("Home")
        page.wait_for_function("() => window.__kvviz_report.step === 0")
        assert page.inner_text("#step") == "1" != step
        page.keyboard.press("End")
        page.wait_for_function("() => window.__kvviz_report.step > 50")
        path = artifacts / f"report-{scheme}-{width}.png"
        page.locator("#map-contiguous").screenshot(path=path)
        assert colours(np.asarray(Image.open(path).convert("RGB"))) > 8
        page.screenshot(path=path)
        shown = np.asarray(Image.open(path).convert("RGB"))
        assert (shown[2, 2].mean() < 60) == (scheme == "dark")
        assert colours(shown) > 60
        assert wrong == []
        assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [
            report_file.as_uri()
        ]
    finally:
        context.close()
