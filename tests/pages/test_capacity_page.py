"""The capacity page: what it shows, what it refuses, and that its formula holds for tensors."""

from __future__ import annotations

import json

import pytest

from kvviz.capacity.plan import Ask, make_plan
from kvviz.capacity.presets import model
from kvviz.capacity.reader import read_shape
from kvviz.capacity.sizes import read_sizes

PAGE = "pages/capacity.py"


@pytest.fixture
def visit(open_page):
    return lambda **address: open_page(PAGE, **address)


def words(page) -> str:
    return " ".join(m.value for m in [*page.markdown, *page.caption, *page.info, *page.success])


def metrics(page) -> dict[str, str]:
    return {m.label: m.value for m in page.metric}


def test_the_page_shows_the_plan(visit):
    """The formula is not filled in, or the pool is not the plan's."""
    page = visit(gpu="A100 80G")
    assert not page.exception and not page.error
    known = model("Llama-3.1-8B")
    plan = make_plan(
        read_shape(known.config), read_sizes(known.config), Ask(parameters=known.parameters)
    )
    assert metrics(page)["KV pool, slots"] == f"{plan.pool_slots:,}"
    assert "32 layers × 8 KV heads × 2 × 128 × 2 B = 131,072 B" in words(page)


def test_the_address_reaches_the_plan(visit):
    """A shared link would show something else."""
    page = visit(model="Gemma-3-27B", gpu="H200 141G", tp="2", kv="fp8", units="32", share="0.8")
    assert not page.exception and not page.error
    assert metrics(page)["Slot, bytes"] == "126,976"
    assert "× 1,024 tokens = 109,051,904 B" in words(page)


def test_another_model_brings_its_parameters(visit):
    """The weights of the last model would be charged to the next."""
    page = visit()
    page.selectbox(key="model").set_value("DeepSeek-V3").run()
    assert page.number_input(key="params").value == pytest.approx(671.03)
    assert page.selectbox(key="weights").value == "fp8"
    (error,) = page.error
    assert "no room for a KV pool" in error.value and not page.exception
    page.select_slider(key="tp").set_value(16).run()
    assert not page.error
    assert metrics(page)["Slot, bytes"] == "70,272"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ("[]", "a JSON object was expected"),
        ('{"hidden_size": 4096}', "num_hidden_layers is missing"),
        ('{"num_hidden_layers": "two"}', "a whole number was expected"),
    ],
)
def test_a_bad_config_is_told(visit, text, says):
    """Pasted text would end in a traceback."""
    page = visit(model="config.json")
    assert "Paste a model's config.json" in words(page)
    page.text_area(key="config-text").set_value(text).run()
    assert not page.exception
    (error,) = page.error
    assert says in error.value


def test_a_pasted_config(visit):
    """A config of one's own can't be planned, or its warnings are kept back."""
    page = visit(model="config.json")
    bare = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    page.text_area(key="config-text").set_value(json.dumps(bare)).run()
    assert "524,288 B" in words(page) and "no pool to plan" in words(page)
    page.number_input(key="params").set_value(6.7).run()
    assert metrics(page)["Slot, bytes"] == "524,288"
    wrong = {**model("Mistral-7B-v0.1").config, "num_key_value_heads": 1}
    page.text_area(key="config-text").set_value(json.dumps(wrong)).run()
    assert any("looks like Mistral-7B" in w.value for w in page.warning)


def test_measure(visit):
    """The button does nothing, or an old measurement stands beside a new plan."""
    page = visit(model="OPT-13B", gpu="A100 40G", mix="control", requests="50", batch="2048")
    assert not page.dataframe
    page.button(key="measure").click().run(timeout=120)
    assert not page.exception and not page.error
    (table,) = page.dataframe
    assert list(table.value["method"])[-1] == "paged"
    page.select_slider(key="units").set_value(32).run()
    assert not page.dataframe


def test_checked_against_the_live_model(visit):
    """The formula and a tensor that exists differ."""
    page = visit()
    page.button(key="check").click().run()
    assert not page.exception and not page.error
    (told,) = page.success
    assert told.value.endswith(": equal.")
    assert "4 layers × 2 KV heads × 2 × 32 × 4 B = 2,048 B" in told.value
