"""Training of the project's own small language model, on one CPU thread.

A run is fixed by its steps, seed, batch, context and the Python it reads its corpus from.
It writes `model.safetensors`, `config.json`, `loss.csv` and `MODEL_CARD.md`.
"""

from __future__ import annotations

import argparse
import csv
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kvviz.model import corpus as corpora
from kvviz.model import weights
from kvviz.model.corpus import EOT, Corpus, Document
from kvviz.model.llama import Llama
from kvviz.model.ngram import NgramModel
from kvviz.shapes import ModelShape

PEAK_RATE = 3e-3
FINAL_SHARE = 0.02
WARMUP_STEPS = 100
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
# Attention over a short window is cheaper, so most steps use one of the same number of tokens.
SHORT_CONTEXT = 256
SHORT_SHARE = 0.75
REPORT_STEPS = 100
PROBE_WINDOWS = 32
EVAL_BATCH = 8
BYTE_ORDER = 3
DEFAULT_STEPS = 3000
DEFAULT_SEED = 1
DEFAULT_BATCH = 8
DEFAULT_CONTEXT = 1024
BLOCKS = "▁▂▃▄▅▆▇█"

CARD_HEAD = """# A byte-level Llama that writes Python

A decoder of about 1.6 million weights in Hugging Face's Llama format: `config.json` has its shape,
`model.safetensors` its weights in float32. `transformers.LlamaForCausalLM.from_pretrained` reads
this folder.

**Intended use.** To fill KV caches with real keys and values, and to have real text come out. It is
not meant to write software.

**Licence.** Weights: Apache-2.0. The corpus, and `prompts.txt` which is cut from its held-out part,
is the Python standard library: copyright Python Software Foundation, PSF License Agreement."""

CARD_TAIL = """## Limits

Its text looks like Python, but its names and calls are often invented and it can repeat training
text. Greedy decoding soon runs in circles; sampling at temperature 0.8 reads better. It knows no
other language than that of the standard library's code and comments. A few held-out modules have
relatives in training (the `distutils` compilers, the `lib2to3` fixers), which helps this model and
the byte model alike."""


@dataclass(frozen=True)
class LossRow:
    """Bits per byte at one step: training since the last row, held-out on the probe windows."""

    step: int
    train: float
    held_out: float


@dataclass(frozen=True)
class Plan:
    """What fixes a run, apart from the corpus. `batch` windows of `context` tokens a step."""

    steps: int
    seed: int
    batch: int
    context: int

    def window(self, step: int) -> tuple[int, int]:
        """(windows, tokens each) of a step: short windows first, full ones at the end."""
        if step >= SHORT_SHARE * self.steps:
            return self.batch, self.context
        short = min(SHORT_CONTEXT, self.context)
        return self.batch * self.context // short, short

    def rate(self, step: int) -> float:
        """Learning rate: linear warm-up, then a cosine down to FINAL_SHARE of the peak."""
        warmup = min(WARMUP_STEPS, max(1, self.steps // 10))
        if step < warmup:
            return PEAK_RATE * (step + 1) / warmup
        progress = (step - warmup) / max(1, self.steps - warmup)
        cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
        return PEAK_RATE * (FINAL_SHARE + (1.0 - FINAL_SHARE) * cosine)


@dataclass(frozen=True)
class TrainReport:
    """What a run measured, in float32. `tokens` counts those trained on, `seconds` all of it.

    `train` is the last row's. `held_out` and `byte_model` are bits per byte over every held-out
    document; `longer` gives (window, bits per byte) on the probe for windows past the trained one.
    """

    plan: Plan
    steps_done: int
    tokens: int
    seconds: float
    train: float
    held_out: float
    byte_model: float
    longer: tuple[tuple[int, float], ...]
    rows: tuple[LossRow, ...]


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
    starts = range(0, len(stream), context)
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


def write_losses(rows: Iterable[LossRow], path: Path) -> None:
    """Write the loss curve as CSV: step, training and held-out bits per byte."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("step", "train_bits_per_byte", "held_out_bits_per_byte"))
        table.writerows((row.step, f"{row.train:.4f}", f"{row.held_out:.4f}") for row in rows)


def sparkline(values: Sequence[float]) -> str:
    """One block character a value, from the smallest to the largest."""
    low, high = min(values), max(values)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * scale)] for value in values)


def model_card(measured: TrainReport, corpus: Corpus) -> str:
    """The model card in Markdown; every number in it comes from the run or the corpus."""
    parts = (CARD_HEAD, _card_data(corpus), _card_training(measured), _card_quality(measured))
    return "\n\n".join((*parts, CARD_TAIL)) + "\n"


def _card_data(corpus: Corpus) -> str:
    """The card's section on documents and modules."""

    def row(name: str, documents: Sequence[Document]) -> str:
        modules = len({document.module for document in documents})
        size = sum(len(document.text) for document in documents)
        return f"| {name} | {modules} | {len(documents):,} | {size:,} |"

    held_out = sorted({document.module for document in corpus.held_out})
    return "\n".join(
        (
            "## Data",
            "",
            f"The source of the Python {corpus.python} standard library, without its tests, "
            "`encodings`, `pydoc_data`, `turtledemo` and site-packages. A document is a top-level "
            f"function or class; a class longer than {corpora.MAX_CLASS_BYTES} bytes gives its "
            "methods instead. Tokens are bytes; token 256 ends every document.",
            "",
            "| part | modules | documents | bytes |",
            "| --- | ---: | ---: | ---: |",
            row("training", corpus.train),
            row("held out", corpus.held_out),
            "",
            "Held-out modules are picked by a hash of their path and are never trained on: "
            + ", ".join(f"`{module}`" for module in held_out)
            + ".",
        )
    )


def _card_training(measured: TrainReport) -> str:
    """The card's section on the run and its loss curve."""
    plan, rows = measured.plan, measured.rows
    windows, length = plan.window(0)
    full = next(step for step in range(plan.steps + 1) if plan.window(step)[1] == plan.context)
    every = max(1, len(rows) // 10)
    table = [row for i, row in enumerate(rows, 1) if i % every == 0 or i in (1, len(rows))]
    return "\n".join(
        (
            "## Training",
            "",
            f"{measured.steps_done:,} of {plan.steps:,} steps of {plan.batch * plan.context:,} "
            f"tokens ({measured.tokens:,} in all), seed {plan.seed}, context {plan.context}: "
            f"{windows} windows of {length} tokens up to step {full:,}, then {plan.batch} of "
            f"{plan.context}. AdamW, peak rate {PEAK_RATE:g}, cosine with {WARMUP_STEPS} steps of "
            f"warm-up, gradient norm clipped at {CLIP_NORM:g}, bfloat16 "
            "autocast, torch.compile where a C++ compiler was found. "
            f"{measured.seconds / 60:.1f} minutes on one CPU thread, "
            f"{measured.tokens / measured.seconds:,.0f} tokens/s with the measures included.",
            "",
            f"Training: `{sparkline([row.train for row in rows])}` "
            f"({rows[0].train:.2f} to {rows[-1].train:.2f} bits per byte)",
            "",
            f"Held-out: `{sparkline([row.held_out for row in rows])}` "
            f"({rows[0].held_out:.2f} to {rows[-1].held_out:.2f}, measured in windows of "
            f"{plan.context} tokens throughout; while windows of {length} are trained, most of "
            "those positions are new to the model, hence the hump)",
            "",
            "| step | training | held out |",
            "| ---: | ---: | ---: |",
            *(f"| {row.step:,} | {row.train:.3f} | {row.held_out:.3f} |" for row in table),
            "",
            "The whole curve is in `loss.csv`.",
        )
    )


def _card_quality(measured: TrainReport) -> str:
    """The card's section on bits per byte, beside the byte model."""
    context = measured.plan.context
    return "\n".join(
        (
            "## Quality",
            "",
            "| bits per byte, all held-out documents | |",
            "| --- | ---: |",
            f"| this model, windows of {context} tokens | {measured.held_out:.3f} |",
            f"| order-{BYTE_ORDER} byte model, Kneser-Ney | {measured.byte_model:.3f} |",
            "",
            "Both pay for end-of-text tokens; the byte model is counted on the same training "
            "documents. Past the trained context the positions are new to the model and its text "
            "degrades: "
            + ", ".join(f"{bits:.3f} in windows of {size}" for size, bits in measured.longer)
            + " (on a part of the same documents).",
        )
    )


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
