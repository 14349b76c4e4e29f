"""`varlen_attn`'s contract in a few lines of numpy-like torch: what its docstring promises."""

from __future__ import annotations

import torch


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> torch.Tensor:
    """One sequence and one query head after the other; the window is aligned to the last key."""
    numbers = (cu_seq_q, seqused_k, *(t for t in (cu_seq_k, block_table) if t is not None))
    assert all(t.dtype == torch.int32 and t.is_contiguous() for t in numbers)
    assert num_splits == 1, "more lose rows of paged batches (pytorch issue 194167)"
    assert cu_seq_q[0] == 0 and cu_seq_q[-1] == len(query)
    assert max_q >= int(cu_seq_q.diff().max()) and max_k >= int(seqused_k.max())
    assert all(t.stride(-1) == 1 for t in (query, key, value))
    group = query.shape[1] // key.shape[-2]
    assert enable_gqa or group == 1
    if block_table is None:
        assert cu_seq_k is not None and (cu_seq_k.diff() >= 0).all()
    out = torch.full_like(query, float("nan"))
    for i, used in enumerate(seqused_k.tolist()):
        rows = slice(int(cu_seq_q[i]), int(cu_seq_q[i + 1]))
        q = query[rows]
        if block_table is None:
            k, v = (t[int(cu_seq_k[i]) :][:used] for t in (key, value))
        else:
            ids = block_table[i, : -(-used // key.shape[1])].long()
            k, v = (t[ids].flatten(0, 1)[:used] for t in (key, value))
        assert len(k) == used
        mine = torch.arange(used - len(q), used)[:, None]
        at = torch.arange(used)[None, :]
        left, right = window_size
        seen = torch.ones(len(q), used, dtype=torch.bool)
        if left >= 0:
            seen &= at >= mine - left
        if right >= 0:
            seen &= at <= mine + right
        for head in range(q.shape[1]):
            scores = q[:, head].float() @ k[:, head // group].float().T / q.shape[-1] ** 0.5
            weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
            out[rows, head] = (weights @ v[:, head // group].float()).to(out.dtype)
    return out
