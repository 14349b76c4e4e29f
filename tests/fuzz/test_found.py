"""What the long runs found, once each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvviz.config import RunConfig
from kvviz.errors import (
    LONGEST,
    CheckpointError,
    ConfigError,
    KvvizError,
    RecordingError,
    TraceError,
)
from kvviz.live.replayed import Replay
from kvviz.model.families import shape_of
from kvviz.model.known import require_known
from kvviz.model.prompts import PromptText, read_chats
from kvviz.model.tokens import ChatTemplate
from kvviz.recording.files import check_target, save, unpack
from kvviz.recording.schema import LATER, STEPS
from kvviz.replay.lanes import base_of, lane_specs
from kvviz.replay.sizes import slots_in
from kvviz.sweeps.grid import parse_seeds
from kvviz.workloads.traces.describe import describe
from kvviz.workloads.traces.read import read_trace
from tests.fuzz.checkpoints import convert, folder, gguf, read_folder
from tests.fuzz.guard import watched
from tests.fuzz.recordings import members, zipped


@pytest.mark.parametrize("value", ["a\r\nb\u2028c", "\0", "\ud800", "x" * 9000, "\x1b[31m"])
def test_a_message_is_one_line_whatever_it_quotes(value: str) -> None:
    """A terminal's colours, or a log's next line, could be written by a file's name."""
    with pytest.raises(ConfigError) as caught:
        RunConfig().replace({"paged.block_size": value})
    said = str(caught.value)
    assert said.isprintable() and len(said) <= LONGEST
    assert said.startswith("paged.block_size=") and said.endswith("a whole number was expected.")


def test_a_range_of_seeds_is_counted_before_it_is_made() -> None:
    """An address took all of the server's memory."""
    with pytest.raises(ConfigError, match="one to 1,000"):
        parse_seeds("0-99999999999999")
    assert parse_seeds("1-1000")[-1] == 1000


def test_a_short_document_takes_little_memory() -> None:
    """Each upload of JSON took 64 MiB, whatever its size."""
    data = b"[[374, 44], [396, 109]]"
    assert watched(lambda: read_trace(data), len(data), memory=True) == ""


def test_a_gzip_does_not_unpack_without_bound() -> None:
    """Two megabytes would be read for minutes, into gigabytes of rows."""
    rows = b"prompt,output\n" + b"1,1\n" * 1_300_000
    with pytest.raises(TraceError, match="more than 20 times its size"):
        read_trace(gzip.compress(rows, 9))
    assert read_trace(gzip.compress(rows[:40_014], 9)).rows == 10_000


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_is_no_file_name(name: str) -> None:
    with pytest.raises(TraceError, match="can't be opened"):
        read_trace(name)
    with pytest.raises(RecordingError, match="can't be written"):
        save(b"", name)


@pytest.mark.parametrize("data", [b"", b"\0\0", b"def \xff"])
def test_prompts_without_text(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "prompts").write_bytes(data)
    with pytest.raises(CheckpointError, match="can't be read"):
        PromptText(tmp_path / "prompts")


def test_chats_that_are_nested_without_end(tmp_path: Path) -> None:
    (tmp_path / "chats").write_bytes(b"[" * 100_000)
    with pytest.raises(CheckpointError, match="can't be read"):
        read_chats(tmp_path / "chats")


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ 'x' * 99999999 }}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% include '/etc/passwd' %}",
    ],
    ids=["loops", "memory", "long", "recursion", "file"],
)
def test_a_chat_template_has_limits(template: str) -> None:
    """A checkpoint could keep the server busy for ever, or take its memory."""
    with pytest.raises(CheckpointError, match="chat template can't render"):
        ChatTemplate(template, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope_scaling", [1]),
        ("rope_theta", float("nan")),
        ("rope_theta", -1),
        ("hidden_size", 1 << 40),
        ("num_attention_heads", -2),
        ("num_attention_heads", True),
        ("num_hidden_layers", 1e9),
        ("architectures", {"a": 1}),
        ("model_type", ["llama"]),
        ("sliding_window", "x"),
        ("rms_norm_eps", float("inf")),
        ("layer_types", [["full_attention"]]),
    ],
)
def test_a_config_of_odd_values(name: str, value: object) -> None:
    config = {**json.loads(folder()["config.json"]), "rope_parameters": None, name: value}
    if name == "architectures":
        assert shape_of(config)  # it says nothing, and the model's type does
        return
    with pytest.raises(CheckpointError):
        shape_of(config)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("chat_template.jinja", b"\x1f\x8b"),
        ("generation_config.json", b'{"eos_token_id": [[1]]}'),
        ("tokenizer_config.json", b"[" * 100_000),
        ("config.json", b'{"a":' * 100_000),
    ],
)
def test_a_folder_with_a_broken_file(name: str, data: bytes, tmp_path: Path) -> None:
    for other, good in folder().items():
        (tmp_path / other).write_bytes(good)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("table", "column"),
    [("contiguous/series.parquet", "waiting"), ("paged/events.parquet", "slots"),
     ("clock.parquet", "equal")],
)  # fmt: skip
def test_a_recording_without_a_column(table: str, column: str, tmp_path: Path) -> None:
    parts = dict(members())
    path = tmp_path / "table"
    path.write_bytes(parts[table])
    pq.write_table(pq.read_table(path).drop_columns([column]), path)
    with pytest.raises(RecordingError, match=f"no column {column}"):
        unpack(zipped({**parts, table: path.read_bytes()}))


def without(column: str, tmp_path: Path) -> bytes:
    """A recording whose paged lane's steps lack this column."""
    parts, table = dict(members()), "paged/steps.parquet"
    path = tmp_path / "table"
    path.write_bytes(parts[table])
    pq.write_table(pq.read_table(path).drop_columns([column]), path)
    return zipped({**parts, table: path.read_bytes()})


OLDER = {name for name in STEPS if name.startswith("counters.") or name in LATER}


@pytest.mark.parametrize("column", sorted(OLDER))
def test_a_recording_that_counts_less(column: str, tmp_path: Path) -> None:
    """The speed was counted from a column that older files may lack: a KeyError on the page."""
    found = Replay(unpack(without(column, tmp_path))).at(3)
    assert (found.lanes["paged"].tokens_per_second > 0) == (column != "counters.generated")


@pytest.mark.parametrize("column", sorted(STEPS.keys() - OLDER))
def test_a_recording_whose_steps_lack_a_column(column: str, tmp_path: Path) -> None:
    """It was shown until a step came that has a head."""
    with pytest.raises(RecordingError, match=column):
        unpack(without(column, tmp_path))


@pytest.mark.parametrize("model", ["/etc", "../../data/model", "~", "data/model"])
def test_an_address_names_no_path_of_the_server(model: str) -> None:
    """The sweep's address could ask whether a file is there, and what is wrong in it."""
    with pytest.raises(ConfigError, match="serves models by name"):
        require_known(model)
    require_known("")


def test_a_lane_is_called_by_a_name() -> None:
    base = base_of("", 4096, 512)
    assert lane_specs(["small one=paged"], base)[0].name == "small one"
    for name in ("<b>", "", "x" * 41, "a\nb"):
        with pytest.raises(KvvizError, match="name of up to 40|no"):
            lane_specs([f"{name}=paged"], base)


RATES = "0,0.5,1.2,Gamma,0.7,2.1\n600,{},{},Weibull,0.7,2.1\n"
LENGTHS = {"0": {"input_tokens": "{10: 1.0}", "output_tokens": "{44: 1.0}"}}


@pytest.mark.parametrize(
    ("rate", "variation"), [("1e308", "1"), ("1", "1e308"), ("1", "18446744073709551616")]
)
def test_servegen_rates_beyond_all_bounds(rate: str, variation: str) -> None:
    """Gaps that are all 0 were drawn for ever."""
    with pytest.raises(TraceError, match="must not be negative, nor more"):
        read_trace(RATES.format(rate, variation).encode(), companion=json.dumps(LENGTHS).encode())


@pytest.mark.parametrize("tokens", ["9" * 30, "-1"])
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens"])
def test_servegen_lengths_beyond_all_bounds(tokens: str, name: str) -> None:
    document = {"0": {**LENGTHS["0"], name: f"{{{tokens}: 1.0}}"}}
    with pytest.raises(TraceError, match="tokens from 0 to"):
        read_trace(json.dumps(document).encode())


def test_a_span_near_zero_has_no_rate() -> None:
    """The report was no JSON: its rate was infinite."""
    found = describe(read_trace(b"prompt,output,t\n1,1,0\n1,1,1e-320\n"))
    assert found["arrivals"] is None
    json.dumps(found, allow_nan=False)


def test_requests_whose_hash_ids_are_not_used_share_nothing() -> None:
    """Two ids are too many for three tokens, and the row whose id fits has no arrival: the blocks
    shared were divided by none. (Found by Atheris.)"""
    rows = [
        {"timestamp": 0, "input_length": 3, "output_length": 44, "hash_ids": [0, 7]},
        {"timestamp": 1, "input_length": 3, "output_length": 44, "hash_ids": [0, 7]},
        {"input_length": 3, "output_length": 44, "hash_ids": [0]},
    ]
    found = describe(read_trace("\n".join(map(json.dumps, rows)).encode()))
    assert found["rows"] == 2
    assert found["prefix"] is None


def test_a_start_of_text_beyond_all_tokens(tmp_path: Path) -> None:
    for other, good in folder().items():
        (tmp_path / other).write_bytes(good)
    config = {**json.loads(folder()["config.json"]), "bos_token_id": 1 << 40}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="bos_token_id"):
        read_folder(tmp_path)


def test_memory_beyond_all_bounds() -> None:
    for gib in (float("inf"), float("nan"), 1e300):
        with pytest.raises(ConfigError, match="GiB of KV memory"):
            slots_in(gib, 2048)


@pytest.mark.parametrize("table", ["clock.parquet", "paged/steps.parquet"])
def test_steps_of_a_recording_rise(table: str, tmp_path: Path) -> None:
    """A look at the speed reached behind the last step."""
    parts = dict(members())
    path = tmp_path / "table"
    path.write_bytes(parts[table])
    found = pq.read_table(path)
    steps = found.column("step").to_pylist()
    column = pa.array([*steps[:-1], 0], found.schema.field("step").type)
    at = found.schema.names.index("step")
    pq.write_table(found.set_column(at, found.schema.field(at), column), path)
    with pytest.raises(RecordingError, match="steps do not rise, or differ"):
        unpack(zipped({**parts, table: path.read_bytes()}))


def test_a_tokenizer_that_knows_no_text(tmp_path: Path) -> None:
    for other, good in folder().items():
        (tmp_path / other).write_bytes(good)
    made = json.loads(folder()["tokenizer.json"])
    made["model"]["vocab"], made["added_tokens"] = {}, []
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(CheckpointError, match="no tokens of plain text"):
        read_folder(tmp_path)


@pytest.mark.parametrize("shard", ["\ud800", "a\0b", "", "..", "/etc/passwd"])
def test_a_shard_with_a_name_of_no_file(shard: str, tmp_path: Path) -> None:
    for other, good in folder().items():
        if other != "model.safetensors":
            (tmp_path / other).write_bytes(good)
    index = {"weight_map": {"model.embed_tokens.weight": shard}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="safetensors"):
        read_folder(tmp_path)


def test_what_is_no_target_is_refused_before_the_run() -> None:
    with pytest.raises(RecordingError, match="no file name"):
        check_target("a\0b")


@pytest.mark.parametrize("token", [257, 1 << 31])
def test_a_tokenizer_gives_no_token_that_the_weights_lack(token: int, tmp_path: Path) -> None:
    """The kernels would read behind the embeddings."""
    for other, good in folder().items():
        (tmp_path / other).write_bytes(good)
    made = json.loads(folder()["tokenizer.json"])
    made["model"]["vocab"]["a"] = token
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(CheckpointError, match="but the weights know 257"):
        read_folder(tmp_path)


@pytest.mark.parametrize("second", ["1e400", "[]", '{"input_lens": 3}', '{"errors": "x"}'])
def test_results_of_several_runs_one_of_them_none(second: str) -> None:
    first = '{"input_lens": [1], "output_lens": [2], "errors": [""]}'
    with pytest.raises(TraceError, match="result 2 of 2 is no result"):
        read_trace(f"{first}\n\n{second}".encode() if second != "[]" else f"[{first},[]]".encode())


def test_a_gguf_whose_merges_are_no_words() -> None:
    """The tokenizer's library raises bare Exceptions."""
    data = gguf()
    with pytest.raises(CheckpointError, match="can't be read as GGUF"):
        convert(data.replace(b"x y", b"x z"))


def test_a_gguf_that_announces_more_than_it_holds() -> None:
    """Its reader would go on behind the end, for as long as the count says."""
    data = gguf()
    count = (6).to_bytes(8, "little")  # of the tokens: the type of an array of strings before it
    announced = b"tokenizer.ggml.tokens" + (9).to_bytes(4, "little") + (8).to_bytes(4, "little")
    assert announced + count in data
    with pytest.raises(CheckpointError, match="in the middle of what it announces"):
        convert(data.replace(announced + count, announced + (1 << 40).to_bytes(8, "little")))
