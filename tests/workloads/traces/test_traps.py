"""What is wrong in real files, and what becomes of every row."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import KvvizError, TraceError
from kvviz.workloads.traces import trace as trace_module
from kvviz.workloads.traces.read import read_trace
from kvviz.workloads.traces.rows import whole

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def asides(found) -> list[tuple[int, str, str]]:
    return [(row.line, row.field, row.reason) for row in found.set_aside.listed]


def test_rows_of_zero_tokens() -> None:
    """C01: failed requests pass for served ones, or one kind for the other."""
    text = HEADER + (
        "5,ChatGPT,472,18,490,Conversation log\n"
        "6,GPT-4,0,0,0,API log\n"
        "7,GPT-4,300,0,300,API log\n"
        "8,GPT-4,0,4,4,API log\n"
    )
    trace = read_trace(text.encode())
    assert (trace.prompt.tolist(), trace.output.tolist()) == ([472], [18])
    assert trace.set_aside.by_reason == {
        "failed request: 0 prompt and 0 output tokens": 1,
        "no answer: 0 output tokens": 1,
        "no prompt: 0 prompt tokens": 1,
    }
    assert [row.line for row in trace.set_aside.listed] == [3, 4, 5]
    assert trace.span_s == 0
    words = trace.set_aside.words
    assert words.startswith("3 rows were set aside: 1 × failed request") and words.endswith(".")


def test_a_line_that_is_no_json() -> None:
    """C02: one number with a space in it ends the load, or is guessed."""
    rows = [
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0]}',
        '{"timestamp": 0, "input_length": 17448, "output_length":2748 610, "hash_ids": [0]}',
        '{"timestamp": 0, "input_length": 7322, "output_length": 490, "hash_ids": [0]}',
    ]
    trace = read_trace("\n".join(rows).encode())
    assert trace.prompt.tolist() == [6758, 7322]
    column = rows[1].index("610") + 1
    assert asides(trace) == [(2, "", f"no JSON: expecting ',' delimiter, column {column}")]
    late = read_trace("\n".join([rows[1], rows[0]]).encode())
    assert late.prompt.tolist() == [6758]
    assert asides(late) == [(1, "", f"no JSON: expecting ',' delimiter, column {column}")]


def test_a_number_of_thousands_of_digits_costs_its_row_only() -> None:
    """Python refuses to read it, and that ends the load."""
    rows = ['{"prompt_len": 5, "output_len": 6}', '{"prompt_len": ' + "1" * 5000 + "}"]
    trace = read_trace("\n".join(rows).encode())
    assert trace.prompt.tolist() == [5]
    assert asides(trace) == [(2, "", "JSON that can't be read")]


def test_a_number_among_stamps() -> None:
    """5 would pass for a time of day, or end the load."""
    row = {"timestamp": "2023-11-16 18:17:03", "input_length": 5, "output_length": 6}
    rows = [row, {**row, "timestamp": 5}, {**row, "timestamp": "2023-11-16 18:17:05"}]
    trace = read_trace("\n".join(map(json.dumps, rows)).encode())
    assert trace.arrival_s.tolist() == [0, 2]
    assert [line for line, *_ in asides(trace)] == [2]


def test_members_of_another_kind_are_set_aside() -> None:
    """One odd member of a list ends the reading, or shifts the places of the others."""
    objects = read_trace(b'[{"prompt_len": 5, "output_len": 6}, 7, {"prompt_len": 8}]')
    assert objects.prompt.tolist() == [5]
    assert [line for line, *_ in asides(objects)] == [2, 3]
    pairs = read_trace(b"[[5, 6], [7], [8, 9]]")
    assert pairs.output.tolist() == [6, 9]
    assert [line for line, *_ in asides(pairs)] == [2]


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "m", "prompt_len": [5, 7], "output_len": [6, 8]}',
        '{"model": "m", "rows": [{"prompt_len": 5, "output_len": 6}, [], {"prompt_len": 7,'
        ' "output_len": 8}]}',
    ],
)
def test_columns_and_the_one_list_of_an_object(text: str) -> None:
    """What stands beside the requests hides them."""
    trace = read_trace(text.encode())
    assert (trace.prompt.tolist(), trace.output.tolist()) == ([5, 7], [6, 8])


def test_an_object_alone_is_one_request() -> None:
    """A request printed over several lines is no request."""
    trace = read_trace(b'{"prompt_len": 5,\n "output_len": 6}')
    assert (trace.prompt.tolist(), trace.output.tolist()) == ([5], [6])


def test_hash_ids_that_do_not_match_the_length() -> None:
    """C03: two blocks of 512 need 513 tokens; the row keeps its lengths and loses its ids."""
    rows = [
        {"timestamp": 0, "input_length": 20, "output_length": 3, "hash_ids": [1, 2]},
        {"timestamp": 1, "input_length": 513, "output_length": 3, "hash_ids": [1, 2]},
        {"timestamp": 2, "input_length": 513, "output_length": 3, "hash_ids": "abc"},
    ]
    trace = read_trace("\n".join(map(json.dumps, rows)).encode())
    assert trace.prompt.tolist() == [20, 513, 513]
    assert [trace.prefix.of(row).tolist() for row in range(3)] == [[], [1, 2], []]
    assert any(note.startswith("2 rows have hash ids that don't fit") for note in trace.notes)


def test_no_timestamp_at_all_and_some_missing() -> None:
    """C04: missing times become 0, and a rescale collapses the run."""
    row = {"input_length": 5, "output_length": 3}
    none = read_trace("\n".join([json.dumps(row)] * 4).encode())
    assert none.arrival_s is None
    assert none.rows == 4
    assert any("generate them" in note for note in none.notes)
    mixed = [{**row, "timestamp": 1000}, row, {**row, "timestamp": None}, {**row, "timestamp": 0}]
    some = read_trace("\n".join(map(json.dumps, mixed)).encode())
    assert some.arrival_s.tolist() == [0, 1]
    reason = "no arrival, though other rows have one"
    assert asides(some) == [(2, "arrival", reason), (3, "arrival", reason)]
    blank = read_trace(b"arrival,prompt,output\n1,2,3\n,2,3\n  ,2,3\n4,2,3")
    assert asides(blank) == [(3, "arrival", reason), (4, "arrival", reason)]


@pytest.mark.parametrize(
    ("cell", "tokens"),
    [("472", 472), (" 472 ", 472), ("472.0", 472), ("1,234", 1234), ("1 234 567", 1234567),
     ("1'234", 1234), ("1\u00a0234", 1234), ("1\u202f234", 1234), (7, 7), (7.0, 7), ("1e3", 1000)],
)  # fmt: skip
def test_cells_with_tokens(cell: object, tokens: int) -> None:
    """A spreadsheet's way of writing a number loses the row."""
    assert whole(cell) == tokens


@pytest.mark.parametrize(
    "cell",
    ["", "-", "nan", "inf", "12.5", "-3", "1,23", "1,234.5", "1,2345", "12 tokens", "1" * 5000,
     "2e9", True, None, [], {}, float("nan"), float("inf"), 12.5, -1, 10**9 + 1],
)  # fmt: skip
def test_cells_without_tokens(cell: object) -> None:
    """Half a number is taken for a whole one."""
    with pytest.raises(ValueError):
        whole(cell)


def test_every_unusable_row_has_its_line_and_reason() -> None:
    """A row is dropped without a word, or under the wrong line."""
    text = (
        "arrival,prompt,output\n"
        '1,"1,234",5\n'
        "2,x,5\n"
        "\n"
        "3,5,12.5\n"
        "4,5\n"
        "soon,5,5\n"
        "nan,5,5\n"
        "arrival,prompt,output\n"
        " , , \n"
        '6,"5","7"\n'
    )
    trace = read_trace(text.encode())
    assert trace.prompt.tolist() == [1234, 5]
    number = "tokens are no whole number from 0 to 1,000,000,000"
    time = "arrival is neither a number nor an ISO 8601 time"
    assert asides(trace) == [
        (3, "prompt", number),
        (5, "output", number),
        (6, "", "row has fewer fields than the header"),
        (7, "arrival", time),
        (8, "arrival", time),
        (9, "", "the header once more"),
        (10, "prompt", number),
    ]
    assert trace.set_aside.count == 7


def test_quoted_fields_may_hold_commas_and_lines() -> None:
    """A prompt's text in the file shifts the columns, or the lines after it."""
    text = 'prompt,output,text\n5,6,"a, b\nc, ""d"""\n7,8,e\n9,x,f\n'
    trace = read_trace(text.encode())
    assert trace.prompt.tolist() == [5, 7]
    assert [row.line for row in trace.set_aside.listed] == [5]


def test_a_quote_that_never_closes() -> None:
    """It swallows the rest of the file without a word."""
    rest = "".join(f"{k},5,6\n" for k in range(40_000))
    trace = read_trace(('arrival,prompt,output\n0,5,6\n1,"5,6\n' + rest).encode())
    assert trace.set_aside.count >= 1
    assert trace.set_aside.listed[0].line == 3
    assert "quote" in trace.set_aside.listed[0].reason
    assert trace.rows > 10_000


def test_list_is_capped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million bad rows fill the memory, or the download hides that it is a part."""
    monkeypatch.setattr("kvviz.workloads.traces.rows.LISTED", 10)
    text = "prompt,output\n5,6\n" + "x,6\n" * 25
    found = read_trace(text.encode()).set_aside
    assert (found.count, len(found.listed)) == (25, 10)
    lines = found.csv().splitlines()
    assert lines[0] == "line,field,reason"
    assert lines[1].startswith('3,prompt,"tokens are no whole number')
    assert lines[-1] == ",,first 10 of 25 rows listed"
    assert len(lines) == 12
    assert trace_module.LISTED >= 1000


def test_ties_keep_the_order_of_the_file() -> None:
    """Requests of one second swap places."""
    rows = "".join(f"{k // 4},{k + 1},{k + 1}\n" for k in range(40))
    trace = read_trace(("arrival,prompt,output\n9,99,99\n" + rows).encode())
    assert trace.prompt.tolist() == [*range(1, 37), 99, 37, 38, 39, 40]


def test_no_text_of_a_request_is_kept_or_shown() -> None:
    """Text reaches a message, a note or the list of rows set aside."""
    rows = [
        {"prompt_len": 5, "output_len": 6, "text": "my secret"},
        {"prompt_len": "my secret", "output_len": 6},
        {"text": "my secret"},
    ]
    trace = read_trace("\n".join(map(json.dumps, rows)).encode())
    assert "secret" not in repr((trace, trace.notes, trace.set_aside.csv()))
    for text in (
        '["my secret", "my secret"]',
        "my secret, my dear\n",
        'my "secret"! is out,or so\n1,2\n',
        '[{"conversations": ["my secret"]}]',
        '{"my secret": 1}\n{"my secret": 2}',
    ):
        with pytest.raises(TraceError) as caught:
            read_trace(text.encode())
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n\n  \n", "empty"),
        ("prompt,output\n", "no rows"),
        ("prompt,output\nx,1\nx,2\n", "no usable row among 2: 2 x tokens are no whole number"),
        ("prompt,output\n0,0\n", "failed request"),
        ("Timestamp,Request tokens,agree3\n5,472,1\n", "output's tokens. Seen: Timestamp, Request"),
        ("1,2,3\n4,5,6\n", "Seen: 3 fields, none with a known name"),
        ("x" * 200_000 + "\n1,2\n", "too long for a header"),
        ("x" * 2_000_000, "too long for a header"),
        ("{}\n{}\n", "Seen: 0 fields"),
        ("{oops}\n{oops}\n", "without one readable object. Line 1: no JSON"),
        ("[1, 2, 3]", "members are no requests"),
        ("[[1, 2], [3, 4]", "no JSON"),
        ("[]", "no list of requests"),
        ('[{"input_lens": [1], "output_lens": [2]}, 3]', "result 2 of 2 is no result"),
        ('[{"input_lens": 5}]', "result 1 of 1 is no result"),
        ("{oops}\n" * 1001 + '{"prompt_len": 5, "output_len": 6}', "without one readable object"),
        ('[{"conversations": []}]', "tokenizer"),
        ('{"input_lens": [1, 2], "output_lens": [1]}', r"different lengths \(1, 2\)"),
        ('{"request_throughput": 3.0, "total_input_tokens": 5}', "--save-detailed"),
        ("[" * 100_000, "nested too deep|no JSON"),
    ],
)
def test_a_file_without_requests_says_what_was_seen(text: str, message: str) -> None:
    """An empty trace, or a traceback."""
    with pytest.raises(TraceError, match=message):
        read_trace(text.encode())


@given(st.binary(max_size=300))
def test_any_bytes_give_a_trace_or_a_message(data: bytes) -> None:
    """Damage ends in a traceback."""
    try:
        rows = read_trace(data).rows
    except KvvizError:
        return
    assert rows > 0


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_ROWS = st.fixed_dictionaries(
    {},
    optional={
        name: _VALUES | st.integers(0, 99)
        for name in ("timestamp", "input_length", "output_length", "hash_ids", "chat_id")
    },
)


@given(st.lists(_ROWS, min_size=1, max_size=8), st.booleans())
def test_every_row_is_taken_or_set_aside(rows: list[dict], as_list: bool) -> None:
    """Odd values end in a traceback, or a row in neither pile."""
    good = {"timestamp": 1, "input_length": 5, "output_length": 6, "hash_ids": [1]}
    rows = [good, *rows]
    text = json.dumps(rows) if as_list else "\n".join(map(json.dumps, rows))
    trace = read_trace(text.encode())
    assert trace.rows + trace.set_aside.count == len(rows)
    assert trace.prompt.min() >= 1
    assert trace.output.min() >= 1


def test_several_results_of_a_benchmark() -> None:
    """Errors of one run are counted against another, or failed requests pass for served."""
    runs = [
        {"input_lens": [5, 6], "output_lens": [7, 0], "errors": ["", "timeout: my secret"]},
        {"input_lens": [8], "output_lens": [9], "start_times": [1.0]},
    ]
    trace = read_trace("\n".join(map(json.dumps, runs)).encode())
    assert trace.prompt.tolist() == [5, 8]
    assert trace.arrival_s is None
    assert asides(trace) == [(2, "errors", "the benchmark reports an error for it")]


def test_triples_have_a_time_or_a_text() -> None:
    """A text is taken for a time, or a time for the prompt."""
    timed = read_trace(b"[[0.5, 5, 6], [2.5, 7, 8]]")
    assert timed.arrival_s.tolist() == [0.5, 2.5]
    assert timed.prompt.tolist() == [5, 7]
    texts = read_trace(b'[["hello", 5, 6], ["you", 7, 8]]')
    assert texts.arrival_s is None
    assert texts.output.tolist() == [6, 8]


def test_objects_printed_over_several_lines() -> None:
    """Mooncake's README prints its sample that way."""
    row = {"timestamp": 3000, "input_length": 5, "output_length": 6, "hash_ids": [1]}
    text = "\n".join([json.dumps(row, indent=4)] * 3)
    trace = read_trace(text.encode())
    assert (trace.format, trace.rows) == ("mooncake", 3)
    assert trace.arrival_s.tolist() == [3, 3, 3]
    assert trace.prefix.ids.tolist() == [1, 1, 1]
