"""The options of `python -m kvviz capacity`."""

from __future__ import annotations

import argparse

from kvviz.capacity.kvshape import KV_DTYPES
from kvviz.capacity.plan import WEIGHTS, Ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--config", metavar="FILE", help="a model's config.json")
    which.add_argument("--model", metavar="NAME", help="a model that kvviz knows")
    add = parser.add_argument
    add("--gpu-memory", type=float, default=Ask.gpu_gib, metavar="GIB", help="of one GPU")
    add("--share", type=float, default=Ask.share, help="of it that the engine may take")
    add("--weights", help=f"precision: {', '.join(WEIGHTS)} (default: bf16, or as published)")
    add("--params", type=float, metavar="1E9", help="parameters in 1e9, else counted")
    add("--weights-gib", type=float, metavar="GIB", help="size of all weights, if known")
    add("--kv-dtype", default="auto", help=f"auto, {', '.join(KV_DTYPES)}")
    add("--tp", type=int, default=Ask.tp, help="GPUs that share a model (tensor parallelism)")
    add("--block-size", type=int, default=Ask.block_size)
    add("--max-len", type=int, help="longest request (default: the longest that fits)")
    add("--batch-tokens", type=int, default=Ask.batch_tokens, help="tokens of the largest step")
    add("--activation-gib", type=float, metavar="GIB", help="a measured peak, else modelled")
    add("--side-gib", type=float, default=0.0, metavar="GIB", help="other buffers on each GPU")
    add("--mix", metavar="PRESET", help="replay this mix; see `presets`")
    add("--requests", type=int, default=200, help="requests replayed for each number")
    add("--seed", type=int, default=1)
    add("--json", metavar="FILE", help="write the report (- for standard output)")
