"""Paged layouts and requests by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.caches.layout import Journal
from kvviz.caches.paged import PagedLayout
from kvviz.records import FreedBlocks, Request
from tests.helpers import config


def paged(block: int, slots: int = 64, **changes: Any) -> PagedLayout:
    """`changes`: settings of `paged`, and `chunk`."""
    chunk = changes.pop("chunk", 0)
    return PagedLayout(
        config(
            {
                "memory.slots": slots,
                "memory.context": 16,
                "paged.block_size": block,
                "engine.chunk": chunk,
                **{f"paged.{name}": value for name, value in changes.items()},
            }
        )
    )


def serve(layout: PagedLayout, served: Request, tokens: int | None = None) -> int:
    """Admit, and write all known tokens; the tokens that were found in memory."""
    tokens = served.prompt_len if tokens is None else tokens
    verdict = layout.admit(served, tokens)
    assert verdict.admitted
    assert layout.append(served.id, tokens - verdict.cached).admitted
    layout.take_journal()
    return verdict.cached


def alike(number: int, prompt: int, shared: int, text: int | None = None) -> Request:
    """A request whose first `shared` tokens others may have too."""
    own = number if text is None else text
    return Request(number, 0, prompt, 5, 5, text=own, shared=((7, shared),) if shared else ())


def block_refs(layout: PagedLayout) -> dict[int, int]:
    """Holders of each block that has any."""
    columns = layout.columns()
    held = np.flatnonzero(columns.refs)
    return dict(zip((columns.start[held] // layout.grain).tolist(), columns.refs[held].tolist(),
                    strict=True))  # fmt: skip


def freed(journal: Journal) -> list[tuple[list[int], int]]:
    """(ids, slots in a block) of each entry, all of which free blocks."""
    assert all(isinstance(entry, FreedBlocks) for entry in journal)
    return [(entry.ids.tolist(), entry.size) for entry in journal]
