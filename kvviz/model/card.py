"""The model card and the loss curve of a training run, as files; every number is measured."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from kvviz.model import corpus as corpora
from kvviz.model.corpus import Corpus, Document
from kvviz.model.plan import BYTE_ORDER, CLIP_NORM, PEAK_RATE, WARMUP_STEPS, LossRow, TrainReport

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
