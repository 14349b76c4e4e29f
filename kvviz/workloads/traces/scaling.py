"""A trace of large prompts for a small context: divided, then cut, and said so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvviz.errors import TraceError
from kvviz.workloads.traces.trace import Prefix, Trace


def divisor(trace: Trace, context: int) -> int:
    """The power of two that brings the 99th percentile of prompt + output under `context`."""
    p99, divide = float(np.percentile(trace.prompt + trace.output, 99)), 1
    while p99 / divide > context:
        divide *= 2
    return divide


def scale_to(trace: Trace, context: int, divide: int = 0) -> Trace:
    """Lengths divided alike (0: by `divisor`), at least 1 token each, then cut so that
    prompt + output - 1 fits in `context` slots. Blocks of hash ids shrink by the same factor; ids
    past the shorter prompt are dropped, and all of them where a block would be under a token.
    Raises TraceError for a context under 2 or a negative divisor.
    """
    if context < 2 or divide < 0:
        raise TraceError(f"context {context}, divide {divide}: at least 2 and 0 were expected.")
    divide = divide or divisor(trace, context)
    prompt, output = (_divided(column, divide) for column in (trace.prompt, trace.output))
    raised = np.count_nonzero((prompt < 1) | (output < 1))
    prompt, output = np.maximum(prompt, 1), np.maximum(output, 1)
    over = prompt + output - 1 > context
    output[over] = np.minimum(output[over], max(1, context // 2))
    prompt[over] = np.minimum(prompt[over], context - output[over] + 1)
    cut = np.count_nonzero(over)
    note = (
        f"Context {context:,}: lengths of {trace.rows * (divide > 1):,} of {trace.rows:,} requests "
    )
    note += f"divided by {divide}, {raised:,} with a length raised to 1 token, {cut:,} cut."
    prefix = trace.prefix and _prefix(trace.prefix, divide, prompt)
    if trace.prefix and not prefix:
        note += f" Hash ids of {trace.prefix.block} tokens can't be divided by {divide}: dropped."
    units = dict(trace.units)
    if trace.prefix:
        units.pop("hash_id", None)
        units |= {"hash_id": f"{prefix.block} tokens"} if prefix else {}
    return trace.noted(note, prompt=prompt, output=output, prefix=prefix, units=units)


def _divided(tokens: np.ndarray, divide: int) -> np.ndarray:
    return np.rint(tokens / divide).astype(np.int64)


def _prefix(prefix: Prefix, divide: int, prompt: np.ndarray) -> Prefix | None:
    if prefix.block % divide:
        return None
    block = prefix.block // divide
    taken = prefix.take(np.arange(len(prompt)), -(-prompt // block))
    return taken and replace(taken, block=block)
