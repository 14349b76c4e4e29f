"""Training: it learns, a seed fixes it, and it leaves the process as it was."""

import argparse
import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from kvviz.model import train as training
from kvviz.model import weights
from kvviz.model.corpus import Corpus, Document
from kvviz.model.plan import FINAL_SHARE, PEAK_RATE, Plan, TrainReport
from kvviz.shapes import ModelShape

SHAPE = ModelShape(hidden_size=48, intermediate_size=64, num_hidden_layers=2, head_dim=8)
LOOP = b"def total(values):\n    result = 0\n    for value in values:\n        result += value\n"
TINY = Corpus(
    train=tuple(Document(f"m{i}.py", LOOP + b"    return result\n") for i in range(20)),
    held_out=(Document("kept.py", LOOP + b"    yield result\n"),),
    python="3",
)


def _train(out: Path, **changes: object) -> TrainReport:
    settings: dict[str, object] = {"steps": 20, "seed": 4, "batch": 4, "context": 64}
    settings |= {"report": lambda line: None, "corpus": TINY, "shape": SHAPE} | changes
    return training.train(out, **settings)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "REPORT_STEPS", 5)


def test_twenty_steps_lower_the_loss(tmp_path: Path) -> None:
    rows = _train(tmp_path).rows
    assert [row.step for row in rows] == [5, 10, 15, 20]
    assert rows[-1].train < 0.85 * rows[0].train
    assert rows[-1].held_out < 0.85 * rows[0].held_out


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 4), ("b", 4), ("c", 5)):
        _train(tmp_path / name, steps=5, seed=seed)
    first, again, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b", "c")
    )
    assert first == again != other


def test_global_state_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    _train(tmp_path, steps=2)
    after = torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_everything_is_written(tmp_path: Path) -> None:
    measured = _train(tmp_path, checkpoint=tmp_path / "checkpoint")
    assert weights.load(tmp_path)[0] == SHAPE
    assert weights.load(tmp_path / "checkpoint")[0] == SHAPE
    with (tmp_path / "loss.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [row.step for row in measured.rows]
    card = (tmp_path / "MODEL_CARD.md").read_text(encoding="utf-8")
    for expected in ("Apache-2.0", "kept.py", f"{measured.held_out:.3f}", "| 20 |"):
        assert expected in card


def test_a_time_limit_stops_early(tmp_path: Path) -> None:
    measured = _train(tmp_path, seconds=0.0)
    assert measured.steps_done == 1
    assert measured.tokens == 4 * 64


def test_windows_grow_but_tokens_a_step_do_not() -> None:
    plan = Plan(steps=100, seed=1, batch=8, context=1024)
    assert plan.window(0) == (32, 256)
    assert plan.window(75) == (8, 1024)


def test_rate_rises_then_falls() -> None:
    plan = Plan(steps=1000, seed=1, batch=8, context=1024)
    rates = [plan.rate(step) for step in range(plan.steps)]
    assert rates[0] < rates[50] < rates[99] == max(rates)
    assert rates[99:] == sorted(rates[99:], reverse=True)
    assert rates[-1] == pytest.approx(PEAK_RATE * FINAL_SHARE, rel=0.01)


def test_batches_are_windows_of_the_stream() -> None:
    stream = torch.arange(50, dtype=torch.int16)
    inputs, targets = training.sample_batch(stream, 6, 8, torch.Generator().manual_seed(0))
    assert inputs.shape == targets.shape == (6, 8)
    assert torch.equal(inputs + 1, targets)


@pytest.mark.parametrize("length", [63, 64, 65, 200])
def test_every_token_of_a_stream_is_counted_once(length: int) -> None:
    """A model whose logits are all equal pays log(vocab) for each, so only the counts matter."""
    seen: list[int] = []

    def uniform(tokens: torch.Tensor) -> torch.Tensor:
        seen.append(tokens.numel())
        return torch.zeros(*tokens.shape, 257)

    nats = training.stream_nats(uniform, np.zeros(length, dtype=np.int16), 64, None)
    assert sum(seen) == length
    assert nats == pytest.approx(np.log(257))


def test_command_trains_and_writes_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training.corpora, "load", lambda: TINY)
    prompts = tmp_path / "prompts.txt"
    options = ["--steps=1", "--batch=1", "--context=32", "--no-compile", f"--prompts={prompts}"]
    assert training.main([*options, f"--out={tmp_path / 'model'}"]) == 0
    assert prompts.read_bytes() == TINY.held_out[0].text + b"\0"
    assert "bits per byte on held-out modules" in capsys.readouterr().out


def test_defaults_are_those_of_the_shipped_run() -> None:
    parser = argparse.ArgumentParser()
    training.add_arguments(parser)
    args = parser.parse_args([])
    assert (args.steps, args.seed, args.batch, args.context) == (3000, 1, 8, 1024)
    assert args.seconds is None
