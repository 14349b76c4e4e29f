"""The lesson and the terms, run by Streamlit's test harness on real tensors."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.build import build_lanes
from kvviz.caches.store import element_type
from kvviz.config import RunConfig
from kvviz.lesson.questions import QUESTIONS
from kvviz.lesson.steps import END, STEPS
from kvviz.lesson.terms import ANCHORS, FORMULAS, WORDS
from kvviz.views.numbers import numbers
from kvviz.views.occupancy import EXTRAS

PAGE = "pages/lesson.py"
FOUND = {
    1: ["= {slot} bytes.", "{pool} bytes / 8,192 slots = {slot} bytes", "0 are free"],
    2: ["4,096 of 8,192 slots are free", "largest hole has 1,024"],
    3: ["F = 4,096 free slots in 4 holes of 1,024", "1 - 1,024 / 4,096 = 0.75"],
    4: [
        "needs 2,048; 4,096 are free, but the largest hole is 1,024: fragmented",
        "first fit: fragmented, best fit: fragmented, worst fit: fragmented, next fit: fragmented",
    ],
    5: ["0 0 0 0 0 0 0 0 0 0 4 0 0 0", "one hole of 3,072, and 2,048 are admitted"],
    6: ["4 runs, 4,096 slots x {slot} bytes = {half} MiB", "admitted at slot 4,096. F = 2,048"],
    7: ["128 blocks, 256 are free: admitted. 0 moves.", "lies in 32 pieces"],
    8: ["Each of the 5 requests wrote one more token", "75 slots are tails"],
}


def said(page: AppTest) -> str:
    return "\n".join(m.value for m in page.markdown)


def test_every_step_has_its_link_and_its_numbers(open_page, hub, loaded):
    """A link would open another step, or a number of the sequence be off."""
    size = element_type(loaded.model.device).itemsize
    slot = loaded.model.shape.slot_bytes(size)
    filled = {"slot": f"{slot:,}", "pool": f"{8192 * slot:,}", "half": f"{slot / 256:.1f}"}
    for number, texts in FOUND.items():
        wanted = [text.format(**filled) for text in texts]
        page = open_page(PAGE, step=str(number))
        assert page.title[0].value.startswith(f"Step {number} of 8: {STEPS[number - 1].title}")
        assert wanted[0] not in said(page)
        page.button(key=f"act-{number}").click().run()
        assert list(page.exception) == [] and list(page.error) == []
        for text in wanted:
            assert text in said(page), (number, text)
        assert any("read back equal to what was written" in c.value for c in page.caption), number
        assert hub().budget.used_bytes == 0


def test_the_indices_of_the_refused_request(open_page):
    """The table would show other numbers than the live page does."""
    page = open_page(PAGE, step="4")
    page.button(key="act-4").click().run()
    (table,) = page.table
    values = dict(zip(table.value["number"], table.value["value"], strict=True))
    assert values["[unusable free space index](terms#unusable-index)"] == "1.000"
    assert values["[fragmentation index](terms#fragmentation-index)"] == "fragmented, 0.250"
    assert values["[external fragmentation](terms#external-fragmentation)"] == "75.0 %"


def test_the_fewest_slots(open_page):
    """The other way to compact would not be carried out when it is chosen after the action."""
    page = open_page(PAGE, step="6")
    page.button(key="act-6").click().run()
    page.segmented_control(key="choice-6").set_value("fewest slots").run()
    assert "1 run, 1,024 slots x" in said(page)
    assert "admitted at slot 1,024. F = 2,048" in said(page)


def test_larger_blocks_have_longer_tails(open_page):
    """The choice of a block size would not reach the layout."""
    page = open_page(PAGE, step="8")
    page.segmented_control(key="choice-8").set_value("256").run()
    page.button(key="act-8").click().run()
    assert "1,275 slots are tails" in said(page)
    assert list(page.table[0].value["tail slots"]) == ["75", "315", "1,275"]


def test_next_and_back(open_page):
    """The reader would be stuck, or run off the end."""
    page = open_page(PAGE)
    back, ahead = page.button[0], page.button[1]
    assert back.disabled and not ahead.disabled
    for _ in STEPS:
        page.button[1].click().run()
    assert page.title[0].value == "Three questions"
    assert page.button[1].disabled
    page.button[0].click().run()
    assert page.title[0].value.startswith("Step 8 of 8")
    assert list(page.exception) == []


@pytest.mark.parametrize("bad", ["0", "9", "x", "-1", ""])
def test_a_bad_link_opens_the_first_step(open_page, bad):
    """It would end in a traceback."""
    page = open_page(PAGE, step=bad)
    assert list(page.exception) == []
    assert page.title[0].value.startswith("Step 1 of 8")


ANSWERS = [
    {"best": "B", "first": "A", "worst": "C", "next": "D"},
    {"64": "3,392", "16": "3,632", "256": "3,072", "1": "3,692"},
    {"50 %": "2,048", "25 %": "1,024", "100 %": "4,096"},
]


def test_the_questions(open_page):
    """A right answer would be called wrong, or the setting make no difference."""
    page = open_page(PAGE, step="questions")
    for number, (question, right) in enumerate(zip(QUESTIONS, ANSWERS, strict=True), 1):
        assert set(right) == set(question.settings)
        for setting, answer in right.items():
            page.segmented_control(key=f"setting-{number}").set_value(setting)
            page.radio(key=f"answer-{number}").set_value(answer).run()
            assert list(page.exception) == []
            assert f"Right: {answer}." in [s.value for s in page.success], setting
        wrong = next(a for a in question.answers if a != answer)
        page.radio(key=f"answer-{number}").set_value(wrong).run()
        assert f"Not {wrong}: it is {answer}." in [w.value for w in page.warning]
        page.radio(key=f"answer-{number}").set_value(answer).run()
    assert END in [s.value for s in page.success]


def test_every_term_has_its_own_link(root, monkeypatch):
    """A link to a term would lead nowhere, or to another one."""
    monkeypatch.chdir(root)
    page = AppTest.from_file(str(root / "pages/terms.py"), default_timeout=60).run()
    assert list(page.exception) == []
    anchors = [s.anchor for s in page.subheader if s.anchor]
    assert anchors == [t.anchor for t in (*WORDS, *FORMULAS)]
    assert len(set(anchors)) == len(anchors)


@pytest.mark.parametrize("pair", ["contiguous,paged", "virtual,prefix", "buddy,cells"])
def test_every_number_has_its_term(pair):
    """A number on a page would be explained nowhere."""
    lanes = build_lanes(RunConfig().replace({"dry": True, "lanes": pair}), history=20)
    for _ in range(10):
        lanes.step()
    for engine in lanes.engines.values():
        shown = {n.name for n in numbers(engine.snapshot(), 300, {"tokens_per_second": 3.0})}
        assert shown - ANCHORS.keys() == set()
    assert ANCHORS.keys() >= {label for label, *_ in EXTRAS.values()}
