"""app.py and the live page, run by Streamlit's test harness."""

from __future__ import annotations

import pytest

from kvviz.config import RunConfig
from kvviz.live.runner import FLAT_OUT
from kvviz.ui.control_tables import BLOCKS, CONTEXTS, CONTROLS, POOLS, groups_for
from kvviz.ui.controls import SPEEDS
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config
from tests.helpers import PAIRS
from tests.live.support import until

KINDS = {"select": "selectbox", "steps": "select_slider", "slider": "slider"}
KINDS["number"] = "number_input"


def test_the_page_shows_all_controls(open_page, script):
    """The page would fail, or a setting could not be reached."""
    page = open_page(script)
    assert quiet(page)
    values = dict_of(preset_config(DEFAULT_PRESET))
    groups = groups_for(("contiguous", "paged"))
    shown = {c.key for _, controls in groups for c in controls if c.shown(values)}
    assert {"preset", "speed", "left", "right", "model"} | shown == keys(page)
    assert {"burst", "conc", "buffers", "page", "wasted", "prefixlen"} <= (
        {c.key for c in CONTROLS} - shown
    )
    assert len(page.sidebar.caption) == 1


def test_a_runner_serves_the_page(open_page, runner):
    """The page would show nothing, or fall asleep at once."""
    open_page()
    until(lambda: runner().latest().state == "running", 60)
    assert runner().latest().device
    assert preset_config(DEFAULT_PRESET) == runner().config
    assert runner().speed == 10.0


@pytest.mark.parametrize("preset", PAIRS)
def test_widgets_take_the_values_of_the_preset(open_page, runner, preset):
    """A preset would start with other settings than its name says."""
    page = open_page(preset=preset)
    assert quiet(page)
    values = dict_of(preset_config(preset))
    of_use = [c for _, controls in groups_for(values["lanes"].split(",")) for c in controls]
    for control in CONTROLS:
        if control in of_use and control.shown(values):
            assert values[control.path] == widget(page, control).value, control.key
        else:
            assert control.key not in keys(page)
    assert preset_config(preset) == runner().config


@pytest.mark.parametrize("script", ["app.py", "pages/live.py"])
@pytest.mark.parametrize(
    ("address", "path", "value"),
    [
        ({"block": "64"}, "paged.block_size", 64),
        ({"fit": "worst"}, "contiguous.fit", "worst"),
        ({"rate": "0.5"}, "mix.rate", 0.5),
        ({"seed": "123"}, "seed", 123),
        ({"pool": "16384"}, "memory.slots", 16384),
        ({"compact": "on_refusal"}, "contiguous.compaction", "on_refusal"),
        ({"preset": "control", "conc": "7"}, "mix.concurrency", 7),
        ({"preset": "control", "seed": "5"}, "mix.concurrency", 16),
    ],
    ids=lambda value: str(value),
)
def test_the_address_reaches_widget_and_run(open_page, runner, script, address, path, value):
    """A shared link would show something else."""
    page = open_page(script, **address)
    assert quiet(page)
    control = next(c for c in CONTROLS if c.path == path)
    assert value == widget(page, control).value
    assert value == dict_of(runner().config)[path]


@pytest.mark.parametrize(
    "address",
    [{"block": "3"}, {"fit": "none"}, {"rate": "x"}, {"rate": "99"}, {"preset": "nope"},
     {"seed": "-5"}, {"speed": "1e9"}, {"pool": ""}],
    ids=str,
)  # fmt: skip
def test_a_broken_address_falls_back(open_page, runner, address):
    """A link with a typing error would show a traceback."""
    assert quiet(open_page(**address))
    config = runner().config
    assert config == config.replace({})


def test_a_change_reaches_the_run(open_page, runner):
    """Controls would do nothing."""
    page = open_page()
    one = runner()
    page.slider(key="rate").set_value(1.0).run()
    assert one.config.mix.rate == 1.0
    page.select_slider(key="block").set_value(32).run()
    assert one.config.paged.block_size == 32
    assert one is runner()
    assert quiet(page)


def test_a_restart_is_told(open_page):
    """The run would start anew without a word."""
    page = open_page()
    page.slider(key="rate").set_value(1.0).run()
    assert list(page.toast) == []
    page.select_slider(key="block").set_value(32).run()
    assert [t.value for t in page.toast] == ["Restarted at step 0: paged.block_size changed."]


def test_speed(open_page, runner):
    """The speed would stay what it was."""
    page = open_page()
    for name, speed in SPEEDS.items():
        page.select_slider(key="speed").set_value(name).run()
        assert speed == runner().speed
    assert FLAT_OUT in SPEEDS.values()


def test_another_preset_resets_the_controls(open_page, runner):
    """A preset would be mixed with what was set before."""
    page = open_page()
    page.select_slider(key="block").set_value(64).run()
    page.slider(key="rate").set_value(1.5).run()
    page.selectbox(key="preset").set_value("reserve-max").run()
    assert page.select_slider(key="block").value == 16
    assert preset_config("reserve-max") == runner().config
    page.selectbox(key="preset").set_value("control").run()
    assert preset_config("control") == runner().config
    page.selectbox(key="preset").set_value(DEFAULT_PRESET).run()
    assert preset_config(DEFAULT_PRESET) == runner().config
    assert quiet(page)


def test_a_trace_can_be_chosen(open_page, runner):
    """Choosing the distribution `trace` would end in an error about a name."""
    page = open_page()
    page.selectbox(key="prompts").set_value("trace").run()
    assert quiet(page)
    assert (
        runner().config.mix.prompts,
        runner().config.mix.trace,
    ) == ("trace", "azure-chat-2023")
    assert "prompt" not in keys(page)


def test_controls_of_no_use_are_hidden(open_page):
    """One would turn a knob that does nothing."""
    page = open_page()
    page.selectbox(key="arrivals").set_value("bursts").run()
    assert {"rate", "burst"} <= keys(page) and "conc" not in keys(page)
    page.selectbox(key="arrivals").set_value("closed").run()
    assert "conc" in keys(page) and not {"rate", "burst"} & keys(page)
    page.slider(key="long").set_value(0.0).run()
    assert "longlen" not in keys(page)


def test_a_contradiction_is_told(open_page, runner, script):
    """Settings that can't be would end in a traceback, or stop the run that there is."""
    page = open_page(script, pool="2048", context="4096")
    assert list(page.exception) == []
    (error,) = page.error
    assert error.value.startswith("memory.context 4096 is more than the pool of 2048 slots")
    assert [warning.value for warning in page.warning] == [
        "The run goes on with the last settings that made sense."
    ]
    assert runner().alive
    page.select_slider(key="context").set_value(1024).run()
    assert quiet(page)
    assert (runner().config.memory.slots, runner().config.memory.context) == (2048, 1024)


def test_a_contradiction_leaves_the_run_alone(open_page, runner):
    """The run would stop while one drags a slider past a contradiction."""
    page = open_page(pool="2048")
    before = runner().config
    page.select_slider(key="context").set_value(4096).run()
    assert len(page.error) == 1
    assert before == runner().config


def test_a_full_server_is_told(open_page, hub):
    """One more visitor would see a traceback."""
    hub()._limit = 0
    page = open_page()
    assert list(page.exception) == []
    (error,) = page.error
    assert "people run kvviz on this server already" in error.value


def test_a_session_keeps_its_runner(open_page, runner):
    """Each script run would start another engine."""
    page = open_page()
    one = runner()
    for _ in range(3):
        page.run()
    assert one is runner()


def test_every_option_is_a_setting_that_can_be(root):
    """A choice in a control would be refused by the settings."""
    for control in CONTROLS:
        for option in control.options:
            changes = {control.path: option, "memory.context": 512, "mix.trace": "azure-chat-2023"}
            if control.path == "memory.context":
                changes = {"memory.context": option}
            RunConfig().replace(changes)
    for preset in PRESETS:
        values = dict_of(preset_config(preset))
        assert values["memory.slots"] in POOLS
        assert values["memory.context"] in CONTEXTS
        assert values["paged.block_size"] in BLOCKS


def widget(page, control):
    return getattr(page, KINDS[control.kind])(key=control.key)


def keys(page) -> set[str]:
    return {w.key for kind in set(KINDS.values()) for w in getattr(page, kind)}


def quiet(page) -> bool:
    """No exception, no error, no warning on the page."""
    found = [e.value for kind in (page.exception, page.error, page.warning) for e in kind]
    assert found == []
    return True


def dict_of(config: RunConfig) -> dict:
    return {path: value for path, value, _ in config.walk()}
