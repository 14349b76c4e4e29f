"""A visitor's own file on the live page."""

from __future__ import annotations

import hashlib

import pytest

from kvviz.live.needs import link_needs

CSV = b"arrival,prompt_tokens,output_tokens\n" + b"".join(
    b"%d,%d,%d\n" % (i * i, 100 + 10 * i, 5 + i) for i in range(20)
)
NAME = "file:" + hashlib.sha256(CSV).hexdigest()[:12]


def given(page, data: bytes = CSV):
    page.file_uploader(key="own-file").upload("mine.csv", data, "text/csv")
    return page.run()


def test_the_files_requests_are_served(open_page, runner):
    """The run would go on with other requests than those of the file."""
    page = given(open_page(speed="flat out"))
    assert list(page.exception) == [] and list(page.error) == []
    config = runner().config
    assert (config.mix.trace, config.mix.arrivals, config.mix.long_share) == (NAME, "trace", 0.0)
    assert page.selectbox(key="trace").value == NAME
    said = [caption.value for caption in page.caption if "requests of a file" in caption.value]
    assert said and said[0].startswith("20 requests of a file (plain")
    assert any("SHA-256 " + NAME[5:] in need for need in link_needs(config))


def test_another_preset_forgets_them(open_page, runner):
    """The file would stay in a preset that has nothing to do with it."""
    page = given(open_page())
    page.selectbox(key="preset").set_value("azure-code-2023").run()
    assert runner().config.mix.trace == "azure-code-2023"
    assert link_needs(runner().config) == []


@pytest.mark.parametrize("data", [b"", b"a,b\n1,2\n", bytes(range(256)) * 9])
def test_a_file_of_something_else(open_page, runner, data):
    """It would end in a traceback, or stop the run."""
    page = given(open_page(), data)
    assert list(page.exception) == []
    assert page.error[0].value
    assert runner().config.mix.trace == ""


def test_a_link_to_a_file_that_is_not_here(open_page, runner):
    """Another run would be shown as the one that was linked."""
    page = open_page(trace="file:0123456789ab", prompts="trace", outputs="trace")
    assert list(page.exception) == []
    (error,) = page.error
    assert "SHA-256 0123456789ab" in error.value and "Your own requests" in error.value


def test_a_link_to_a_file_that_is(open_page, runner):
    """Whoever has given the file could not open the link."""
    given(open_page())
    page = open_page(trace=NAME, prompts="trace", outputs="trace", arrivals="trace", long="0.0")
    assert list(page.exception) == [] and list(page.error) == []
    assert page.selectbox(key="trace").value == NAME
