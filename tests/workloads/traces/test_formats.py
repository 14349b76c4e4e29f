"""Every format is known by its content, and read in its own units."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest

from kvviz.errors import TraceError
from kvviz.workloads.traces.read import FORMATS, read_trace

AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n"
    "2023-11-16 18:15:51.2224670,879,55"  # neither line end nor newline after the last row
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,374,44\n"
    "2024-05-10 00:00:05+00:00,396,109\n"  # some stamps have no fraction
    "2024-05-10 00:00:06.5+00:00,879,55\n"
)
AZURE_2025 = (
    "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
    "2024-10-15T12:00:00.269Z,0,374,44\n"
    "2024-10-15T12:00:05.819Z,1,396,109\n"
    "2024-10-15T12:00:06.513Z,1,879,55\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,374,44,418,Conversation log\n"
    "45,ChatGPT,396,109,505,Conversation log\n"
    "118,GPT-4,879,55,934,API log\n"
)
BURSTGPT_2 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,a,1.5,ChatGPT,374,44,418,Conversation log\n"
    "19440150.0,a,0.5,ChatGPT,396,109,505,Conversation log\n"
    "19440223.0,b,2.5,GPT-4,879,55,934,API log\n"
)
VIDUR = (
    "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n4.5,879,55\n"
)
VIDUR_LENGTHS = (
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\r\n"
    "374,44,418,8.5\r\n396,109,505,3.6\r\n879,55,934,15.98\r\n"
)
VTC = (
    "req_id,adapter_dir,prompt_len,output_len,req_time\n"
    "0,lora-13,374,44,0.0\n1,lora-2,396,109,0.25\n2,lora-0,879,55,1.5\n"
)
PLAIN = "Arrival (ms);Prompt;Output\n0;374;44\n1500;396;109\n2000;879;55\n"


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


MOONCAKE = lines(
    {"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [0]},
    {"timestamp": 3001, "input_length": 396, "output_length": 109, "hash_ids": [0]},
    {"timestamp": 3001, "input_length": 879, "output_length": 55, "hash_ids": [0, 7]},
)
_CHAT = {"parent_chat_id": -1, "type": "text", "turn": 1}
BAILIAN = lines(
    {"chat_id": 1, **_CHAT, "timestamp": 61.114, "input_length": 374, "output_length": 44,
     "hash_ids": list(range(24))},
    {"chat_id": 2, **_CHAT, "timestamp": 62.5, "input_length": 396, "output_length": 109,
     "hash_ids": list(range(25))},
    {"chat_id": 3, **_CHAT, "timestamp": 63.0, "input_length": 879, "output_length": 55,
     "hash_ids": list(range(55))},
)  # fmt: skip
APEX = lines(
    {"ContextTokens": 374, "GeneratedTokens": 44, "SynthesizedBody": "secret", "RequestID": "a",
     "TotalTokens": 418, "StartTimeOffset": 197890289},
    {"ContextTokens": 396, "GeneratedTokens": 109, "SynthesizedBody": "", "RequestID": "b",
     "TotalTokens": 505, "StartTimeOffset": 1500203480},
    {"ContextTokens": 879, "GeneratedTokens": 55, "SynthesizedBody": "", "RequestID": "c",
     "TotalTokens": 934, "StartTimeOffset": 3892679289},
)  # fmt: skip
_IDS = {"input_tok_ids": [5, 6], "output_tok_ids": []}
LLMSERVINGSIM = lines(
    {"input_toks": 374, "output_toks": 44, "arrival_time_ns": 46926808, **_IDS},
    {"input_toks": 396, "output_toks": 109, "arrival_time_ns": 347938951, **_IDS},
    {"input_toks": 879, "output_toks": 55, "arrival_time_ns": 479613520, **_IDS},
)
VLLM = json.dumps(
    {
        "date": "20250101-000000",
        "request_rate": "inf",
        "request_throughput": 3.1,
        "input_lens": [374, 396, 879],
        "output_lens": [44, 109, 55],
        "ttfts": [0.1, 0.1, 0.2],
        "start_times": [9001.5, 9002.0, 9003.25],
        "generated_texts": ["secret", "secret", "secret"],
        "errors": ["", "", ""],
    }
)
PAIRS = "[[374, 44], [396, 109], [879, 55]]"
OBJECTS = json.dumps(
    [
        {"prompt_len": 374, "output_len": 44},
        {"prompt_len": 396, "output_len": 109},
        {"prompt_len": 879, "output_len": 55},
    ],
    indent=2,
)


class Sample(NamedTuple):
    text: str
    format: str
    unit: str
    arrivals: list[float] | None


SAMPLES = {
    "azure 2023": Sample(
        AZURE_2023, "azure-2023", "wall clock (ISO 8601)", [0, 4.314579, 4.541877]
    ),
    "azure 2024": Sample(AZURE_2024, "azure-2024", "wall clock (ISO 8601)", [0, 4.99007, 6.49007]),
    "azure 2025": Sample(AZURE_2025, "azure-2025", "wall clock (ISO 8601)", [0, 5.55, 6.244]),
    "burstgpt": Sample(BURSTGPT, "burstgpt", "s", [5, 45, 118]),
    "burstgpt 2": Sample(BURSTGPT_2, "burstgpt", "s", [19440110, 19440150, 19440223]),
    "vidur": Sample(VIDUR, "vidur", "s", [0, 4.314579, 4.5]),
    "vidur lengths": Sample(VIDUR_LENGTHS, "vidur", "none", None),
    "vtc": Sample(VTC, "vtc", "s", [0, 0.25, 1.5]),
    "plain": Sample(PLAIN, "plain", "ms", [0, 1.5, 2]),
    "mooncake": Sample(MOONCAKE, "mooncake", "ms", [0, 3.001, 3.001]),
    "bailian": Sample(BAILIAN, "bailian", "s", [61.114, 62.5, 63]),
    "apex": Sample(APEX, "apex", "ns", [0.197890289, 1.50020348, 3.892679289]),
    "llmservingsim": Sample(
        LLMSERVINGSIM, "llmservingsim", "ns", [0.046926808, 0.347938951, 0.47961352]
    ),
    "vllm": Sample(VLLM, "vllm-bench", "s", [0, 0.5, 1.75]),
    "pairs": Sample(PAIRS, "lengths", "none", None),
    "objects": Sample(OBJECTS, "lengths", "none", None),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_format(name: str) -> None:
    """A format is taken for another, its times are off by a thousand, or a row is lost."""
    sample = SAMPLES[name]
    trace = read_trace(sample.text.encode())
    assert trace.format == sample.format
    assert trace.format in FORMATS
    assert trace.units["arrival"] == sample.unit
    assert trace.prompt.tolist() == [374, 396, 879]
    assert trace.output.tolist() == [44, 109, 55]
    assert trace.set_aside.count == 0
    assert (trace.prompt_tokens, trace.output_tokens, trace.rows) == (1649, 208, 3)
    if sample.arrivals is None:
        assert trace.arrival_s is None
        assert trace.span_s is None
        assert any("No arrivals" in note for note in trace.notes)
    else:
        assert trace.arrival_s == pytest.approx(sample.arrivals, abs=1e-9)
        assert trace.span_s == pytest.approx(sample.arrivals[-1] - sample.arrivals[0])


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_mark_and_line_ends_change_nothing(name: str, end: str, mark: bytes) -> None:
    """C05: the mark is glued to the first name, or a carriage return to the last column."""
    sample = SAMPLES[name]
    plain = read_trace(sample.text.encode())
    text = end.join(sample.text.splitlines()).replace(end, end * 2, 2)  # and a blank line or two
    for final in ("", end):
        other = read_trace(mark + (text + final).encode())
        assert other.format == plain.format
        assert other.prompt.tolist() == plain.prompt.tolist()
        assert other.output.tolist() == plain.output.tolist()
        assert other.set_aside.count == 0
        assert (other.arrival_s is None) == (plain.arrival_s is None)
        assert plain.arrival_s is None or np.array_equal(other.arrival_s, plain.arrival_s)


def test_two_formats_of_the_same_requests_agree() -> None:
    """vidur's copy of Azure 2023 has other arrivals or lengths than Azure 2023."""
    azure, vidur = read_trace(AZURE_2023.encode()), read_trace(VIDUR.encode())
    assert np.array_equal(azure.prompt, vidur.prompt)
    assert azure.arrival_s[:2] == pytest.approx(vidur.arrival_s[:2], abs=1e-9)


def test_hash_ids_by_row() -> None:
    """Ids move to another row, or Mooncake's blocks pass for Bailian's."""
    trace = read_trace(MOONCAKE.encode())
    assert trace.prefix.block == 512
    assert trace.units["hash_id"] == "512 tokens"
    assert [trace.prefix.of(row).tolist() for row in range(3)] == [[0], [0], [0, 7]]
    bailian = read_trace(BAILIAN.encode())
    assert bailian.prefix.block == 16
    assert np.diff(bailian.prefix.offsets).tolist() == [24, 25, 55]
    assert read_trace(VIDUR.encode()).prefix is None


def test_hash_ids_of_any_kind() -> None:
    """An id past 63 bits, or a word, loses its row or its equality with the same id elsewhere."""
    big = 2**64 - 5
    trace = read_trace(
        lines(
            {"timestamp": 0, "input_length": 900, "output_length": 1, "hash_ids": [5, big]},
            {"timestamp": 1, "input_length": 900, "output_length": 1, "hash_ids": ["x", 5]},
            {"timestamp": 2, "input_length": 900, "output_length": 1, "hash_ids": [big, "x"]},
        ).encode()
    )
    first, second, third = (trace.prefix.of(row).tolist() for row in range(3))
    assert first[0] == second[1] == 5
    assert first[1] == third[0]
    assert second[0] == third[1]
    assert len({*first, *second, *third}) == 3


def test_ids_follow_their_rows_when_sorted() -> None:
    """Sorting by arrival leaves the ids in the order of the file."""
    rows = [
        {"timestamp": t, "input_length": 1000, "output_length": t + 1, "hash_ids": ids}
        for t, ids in ((9, [1, 2]), (3, []), (3, [4]), (0, [5, 6]))
    ]
    trace = read_trace(lines(*rows).encode())
    assert trace.output.tolist() == [1, 4, 4, 10]
    assert [trace.prefix.of(row).tolist() for row in range(4)] == [[5, 6], [], [4], [1, 2]]
    assert trace.reordered == 2
    assert any("2 rows stood out of order" in note for note in trace.notes)


def test_extra_columns_are_tolerated() -> None:
    """Azure with a column more is no longer Azure."""
    text = AZURE_2023.replace("\r\n", ",x\n").replace("GeneratedTokens,x", "GeneratedTokens,Extra")
    trace = read_trace((text + ",x\n").encode())
    assert (trace.format, trace.rows) == ("azure-2023", 3)


@pytest.mark.parametrize(
    ("header", "unit", "second"),
    [
        ("arrival,prompt,output", "s", 1500),
        ("time_ms,input tokens,output tokens", "ms", 1.5),
        ("Timestamp [us],ISL,OSL", "us", 0.0015),
        ("start_time_ns,prompt_tokens,completion_tokens", "ns", 1.5e-6),
        ("arrival seconds,PromptLength,decode_tokens", "s", 1500),
        ("offset\tnum_prompt_tokens\tnum_output_tokens", "s", 1500),
        ("created|prompt len|output len", "s", 1500),
    ],
)
def test_usual_names_of_a_plain_file(header: str, unit: str, second: float) -> None:
    """A person's own file is refused, or its unit of time ignored."""
    mark = next((m for m in "\t|;" if m in header), ",")
    text = (
        header + "\n" + "\n".join(mark.join(row) for row in (("0", "5", "6"), ("1500", "7", "8")))
    )
    trace = read_trace(text.encode())
    assert trace.format == "plain"
    assert trace.units["arrival"] == unit
    assert trace.arrival_s == pytest.approx([0, second])
    assert (trace.prompt.tolist(), trace.output.tolist()) == ([5, 7], [6, 8])


@pytest.mark.parametrize(
    ("first", "second", "unit"),
    [
        (1_700_000_000, 1_700_000_002, "epoch, s"),
        (1_700_000_000_000, 1_700_000_002_000, "epoch, ms"),
        (1_700_000_000_000_000, 1_700_000_002_000_000, "epoch, us"),
        (1_700_000_000_000_000_007, 1_700_000_002_000_000_007, "epoch, ns"),
    ],
)
def test_unit_of_an_epoch_follows_from_its_size(first: int, second: int, unit: str) -> None:
    """Epoch milliseconds are read as seconds: the replay would take 30,000 years."""
    trace = read_trace(f"timestamp,prompt,output\n{first},1,1\n{second},1,1\n".encode())
    assert trace.arrival_s.tolist() == [0, 2]
    assert unit in trace.units["arrival"]


def test_unit_can_be_overruled() -> None:
    """A file of a known format in another unit can't be read."""
    trace = read_trace(MOONCAKE.encode(), unit="s")
    assert trace.arrival_s.tolist() == [0, 3001, 3001]
    with pytest.raises(TraceError, match="'m': one of s, ms, us, ns"):
        read_trace(MOONCAKE.encode(), unit="m")


def test_stamps_of_two_zones() -> None:
    """The zone of a stamp is ignored: 01:00+01:00 is midnight UTC."""
    text = (
        "time,prompt,output\n2024-01-01T00:00:00Z,1,1\n"
        "2024-01-01T01:00:01+01:00,2,2\n2024-01-01 00:00:02,3,3\n"
    )
    assert read_trace(text.encode()).arrival_s.tolist() == [0, 1, 2]
