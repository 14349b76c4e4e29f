"""What to say when a pass of the decoder meets numbers that are not finite."""

from __future__ import annotations

import numpy as np
import torch

from kvviz.caches.layout import AddressTable
from kvviz.caches.store import KVStore
from kvviz.model.rows import Rows


def not_finite(rows: Rows, row: int, store: KVStore, table: AddressTable) -> AssertionError:
    """The error of this row of the batch; it names the slots that hold the numbers, if any do."""
    request, position = int(rows.requests[row]), int(rows.positions[row])
    # What this very batch writes is not there yet in all layers
    at = np.arange(int(rows.positions[rows.requests == request].min()))
    slots = table.array[rows.lines[row], at // table.piece] + at % table.piece
    read = store.view[:, :, torch.from_numpy(slots.astype(np.int64))]
    bad = (~read.isfinite()).any(4).any(3).any(1).any(0).cpu().numpy()
    if not bad.any():
        return AssertionError(f"request {request}, token {position}: the model gave no number")
    return AssertionError(
        f"request {request}, token {position}, read K or V that is no number, in slots "
        f"{slots[bad][:8].tolist()}"
    )
