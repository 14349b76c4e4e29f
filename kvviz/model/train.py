"""Training of the project's own small language model, on one CPU thread.

A run is fixed by its steps, seed, batch, context and the Python it reads its corpus from.
It writes `model.safetensors`, `config.json`, `loss.csv` and `MODEL_CARD.md`.
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kvviz.model import corpus as corpora
from kvviz.model import weights
from kvviz.model.card import model_card, write_losses
from kvviz.model.corpus import EOT, Corpus
from kvviz.model.llama import Llama
from kvviz.model.ngram import NgramModel
from kvviz.model.plan import (
    BYTE_ORDER,
    CLIP_NORM,
    DEFAULT_BATCH,
    DEFAULT_CONTEXT,
    DEFAULT_SEED,
    DEFAULT_STEPS,
    EVAL_BATCH,
    PEAK_RATE,
    PROBE_WINDOWS,
    REPORT_STEPS,
    WEIGHT_DECAY,
    LossRow,
    Plan,
    TrainReport,
)
from kvviz.shapes import ModelShape


def bits_per_byte(nats_per_token: float, stream: np.ndarray) -> float:
    """Cost of a stream in bits, its end-of-text tokens included, over its number of bytes."""
    return nats_per_token / math.log(2) * len(stream) / int(np.count_nonzero(stream != EOT))


def sample_batch(
    stream: Tensor, windows: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Random windows of a token stream: inputs and targets, each int64 [windows, length]."""
    starts = torch.randint(0, len(stream) - length, (windows,), generator=generator)
    index = starts[:, None] + torch.arange(length + 1)
    taken = stream[index].long()
    return taken[:, :-1], taken[:, 1:]


@torch.no_grad()
def stream_nats(model: Llama, stream: np.ndarray, context: int, windows: int | None) -> float:
    """Mean nats a token of a stream that starts after an EOT, in windows that don't overlap.

    `windows` limits the measure to that many windows, spread evenly; None takes the whole stream.
    """
    tokens = torch.from_numpy(np.concatenate(([EOT], stream)).astype(np.int64))
    starts: Sequence[int] = range(0, len(stream), context)
    if windows is not None and windows < len(starts):
        starts = [starts[i * len(starts) // windows] for i in range(windows)]
    spans = [tokens[s : s + context + 1] for s in starts]
    # Only the stream's last window can be shorter than the rest; it makes its own batch.
    ragged = [spans.pop()] if len(spans[-1]) < len(spans[0]) else []
    batches = [torch.stack(spans[i : i + EVAL_BATCH]) for i in range(0, len(spans), EVAL_BATCH)]
    batches += [span[None] for span in ragged]
    total = count = 0.0
    for batch in batches:
        logits = model(batch[:, :-1]).flatten(0, 1)
        total += float(F.cross_entropy(logits, batch[:, 1:].flatten(), reduction="sum"))
        count += logits.shape[0]
    return total / count


def _optimizer(model: Llama) -> torch.optim.AdamW:
    """AdamW; norms' gains are not decayed."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": gains, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))


def _step(
    model: Llama,
    forward: Callable[[Tensor], Tensor],
    optimizer: torch.optim.AdamW,
    batch: tuple[Tensor, Tensor],
    rate: float,
) -> float:
    """One update of the weights, in bfloat16 autocast; gives the mean nats a token before it."""
    inputs, targets = batch
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16):
        logits = forward(inputs)
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimizer.step()
    return loss.item()


def train(
    out: Path,
    *,
    steps: int,
    seed: int,
    batch: int,
    context: int,
    report: Callable[[str], None] = print,
    corpus: Corpus | None = None,
    shape: ModelShape | None = None,
    compiled: bool = False,
    seconds: float | None = None,
    checkpoint: Path | None = None,
) -> TrainReport:
    """Train from random weights and write the model folder `out`; gives what was measured.

    `seconds` stops early; `checkpoint` is a folder that gets the weights at every report.
    """
    corpus = corpora.load() if corpus is None else corpus
    plan = Plan(steps, seed, batch, context)
    streams = corpora.pack(corpus.train), corpora.pack(corpus.held_out)
    model = Llama(shape or ModelShape(), torch.Generator().manual_seed(seed))
    start = time.perf_counter()
    rows: list[LossRow] = []
    for row in _rows(model, plan, streams, compiled, seconds):
        rows.append(row)
        speed = row.step * batch * context / (time.perf_counter() - start)
        report(
            f"step {row.step:5d}  train {row.train:.3f}  held-out {row.held_out:.3f} bits per byte"
            f"  {speed:,.0f} tokens/s"
        )
        if checkpoint is not None:
            weights.save(model, checkpoint)
    measured = measure(model, plan, streams, rows, time.perf_counter() - start)
    weights.save(model, out)
    write_losses(rows, out / "loss.csv")
    (out / "MODEL_CARD.md").write_text(model_card(measured, corpus), encoding="utf-8")
    return measured


def measure(
    model: Llama,
    plan: Plan,
    streams: tuple[np.ndarray, np.ndarray],
    rows: list[LossRow],
    seconds: float,
) -> TrainReport:
    """Bits per byte of a trained model and of the byte model; streams: training, held-out."""
    learn, held_out = streams

    def bits(window: int, windows: int | None) -> float:
        return bits_per_byte(stream_nats(model, held_out, window, windows), held_out)

    return TrainReport(
        plan=plan,
        steps_done=rows[-1].step,
        tokens=rows[-1].step * plan.batch * plan.context,
        seconds=seconds,
        train=rows[-1].train,
        held_out=bits(plan.context, None),
        byte_model=NgramModel.fit(learn, BYTE_ORDER).bits_per_byte(held_out),
        longer=tuple(
            (k * plan.context, bits(k * plan.context, PROBE_WINDOWS // k)) for k in (2, 4)
        ),
        rows=tuple(rows),
    )


def _rows(
    model: Llama,
    plan: Plan,
    streams: tuple[np.ndarray, np.ndarray],
    compiled: bool,
    seconds: float | None,
) -> Iterator[LossRow]:
    """Update `model` in place step by step, with a row every REPORT_STEPS and at the end."""
    learn, held_out = streams
    tokens = torch.from_numpy(learn)
    generator = torch.Generator().manual_seed(plan.seed)
    optimizer = _optimizer(model)
    forward = torch.compile(model, dynamic=False) if compiled else model
    deadline = math.inf if seconds is None else time.perf_counter() + seconds
    nats: list[float] = []
    for step in range(plan.steps):
        batch = sample_batch(tokens, *plan.window(step), generator)
        nats.append(_step(model, forward, optimizer, batch, plan.rate(step)))
        last = step + 1 == plan.steps or time.perf_counter() > deadline
        if last or (step + 1) % REPORT_STEPS == 0:
            probe = stream_nats(model, held_out, plan.context, PROBE_WINDOWS)
            yield LossRow(
                step + 1,
                bits_per_byte(float(np.mean(nats)), learn),
                bits_per_byte(probe, held_out),
            )
            nats.clear()
        if last:
            return


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; their defaults are those of the shipped run."""
    parser.add_argument("--out", type=Path, default=Path("data/model"), help="model folder")
    parser.add_argument(
        "--prompts", type=Path, default=Path("data/prompts.txt"), help="file of held-out documents"
    )
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--batch", type=int, default=DEFAULT_BATCH, help="windows a step")
    parser.add_argument("--context", type=int, default=DEFAULT_CONTEXT, help="tokens a window")
    parser.add_argument("--seconds", type=float, help="stop after this long (default: no limit)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--checkpoint", type=Path, help="folder for weights while training")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=shutil.which("g++") is not None,
        help="use torch.compile, which needs a C++ compiler (default: when g++ is found)",
    )


def run(args: argparse.Namespace) -> int:
    """Train as the options say and write the prompts; gives the exit status."""
    corpus = corpora.load()
    threads = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    try:
        measured = train(
            args.out,
            steps=args.steps,
            seed=args.seed,
            batch=args.batch,
            context=args.context,
            corpus=corpus,
            compiled=args.compile,
            seconds=args.seconds,
            checkpoint=args.checkpoint,
        )
    finally:
        torch.set_num_threads(threads)
    args.prompts.parent.mkdir(parents=True, exist_ok=True)
    corpora.write_prompts(corpus.held_out, args.prompts)
    print(
        f"{args.out}: {measured.held_out:.3f} bits per byte on held-out modules, "
        f"order-{BYTE_ORDER} byte model {measured.byte_model:.3f}"
    )
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Parse `argv` and run."""
    parser = argparse.ArgumentParser(prog="kvviz train", description="Train the language model.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    raise SystemExit(main())
