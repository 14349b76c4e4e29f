"""CPU kernels (numba): they read the KV store in place, through the address table.

Token i of a row's sequence lies in slot `table[i // piece] + i % piece` (see
`caches.layout.AddressTable`), so the same attention serves a contiguous region (one piece) and a
paged sequence (a piece a block), and adds up in the same order: the lanes' outputs are equal to
the bit. So is the order in memory: K and V come as plain rows of d_h numbers, and head h of slot s
is row `h * head_step + s * slot_step` (see `caches.store.Planes`). Strided arrays instead would be
compiled a second time, into loops that are ten times slower and add up in another order.
Compiled once and cached on disk. One thread; the GIL is released.

Why not torch: a gather copies K and V of the whole batch each step, and one SDPA call a sequence
costs more to dispatch than to compute at this size.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_OPTIONS = {"cache": True, "nogil": True, "fastmath": True, "boundscheck": False}
_F = np.float32
_UNSEEN = _F(-1e30)  # a score so low that its weight is 2**-126; fast maths knows no infinity
_NEVER_DRAWN = -40.0  # exp(-40) is 4e-18: over a large vocabulary most calls to exp are for these


@njit(**_OPTIONS)
def rms_norm(x, weight, eps, out):
    """out = x / rms(x) * weight, row by row. x, out [n, d], weight [d]."""
    d = x.shape[1]
    for n in range(x.shape[0]):
        total = _F(0)
        for i in range(d):
            total += x[n, i] * x[n, i]
        scale = _F(1) / np.sqrt(total / _F(d) + eps)
        for i in range(d):
            out[n, i] = x[n, i] * scale * weight[i]


@njit(**_OPTIONS)
def head_norms(qkv, q_weight, k_weight, eps, heads, kv_heads):
    """In place: RMS norm of each query head and each key head (Qwen3). weights [d_h]."""
    d = len(q_weight)
    for n in range(qkv.shape[0]):
        for h in range(heads + kv_heads):
            weight = q_weight if h < heads else k_weight
            at = h * d
            total = _F(0)
            for i in range(d):
                total += qkv[n, at + i] * qkv[n, at + i]
            scale = _F(1) / np.sqrt(total / _F(d) + eps)
            for i in range(d):
                qkv[n, at + i] *= scale * weight[i]


@njit(**_OPTIONS)
def rotate_and_store(qkv, cos, sin, positions, slots, heads, k_rows, v_rows, head_step, slot_step):
    """Apply RoPE (rotate half) to q in place; rotate k and put k and v into their slots.

    qkv [n, (heads + 2 * H_kv) * d_h], cos and sin [positions, d_h / 2], positions and slots [n],
    k_rows and v_rows [rows, d_h] as the module says.
    """
    d = k_rows.shape[1]
    kv_heads = (qkv.shape[1] // d - heads) // 2
    half = d // 2
    for n in range(len(slots)):
        p, s = positions[n], slots[n]
        for h in range(heads):
            at = h * d
            for i in range(half):
                a, b = qkv[n, at + i], qkv[n, at + half + i]
                qkv[n, at + i] = a * cos[p, i] - b * sin[p, i]
                qkv[n, at + half + i] = b * cos[p, i] + a * sin[p, i]
        for h in range(kv_heads):
            row = h * head_step + s * slot_step
            at = (heads + h) * d
            for i in range(half):
                a, b = qkv[n, at + i], qkv[n, at + half + i]
                k_rows[row, i] = a * cos[p, i] - b * sin[p, i]
                k_rows[row, half + i] = b * cos[p, i] + a * sin[p, i]
            at = (heads + kv_heads + h) * d
            for i in range(d):
                v_rows[row, i] = qkv[n, at + i]


@njit(**_OPTIONS)
def swiglu(gate_up, out):
    """out = silu(gate) * up. gate_up [n, 2 * d], out [n, d]."""
    d = out.shape[1]
    for n in range(out.shape[0]):
        for i in range(d):
            g = gate_up[n, i]
            e = np.exp(-abs(g))
            sigmoid = (_F(1) if g >= 0 else e) / (_F(1) + e)
            out[n, i] = g * sigmoid * gate_up[n, d + i]


@njit(**_OPTIONS)
def _scores(q, k, step, table, piece, count, scale, scores):
    """scores[g, i] = q[g] . k[step * slot of token i] * scale, query heads by threes and ones."""
    heads, d = q.shape
    for g in range(0, heads - 2, 3):
        i = 0
        b = 0
        while i < count:
            base = np.int64(table[b])
            for j in range(min(piece, count - i)):
                s0, s1, s2 = _F(0), _F(0), _F(0)
                for c in range(d):
                    kc = k[(base + j) * step, c]
                    s0 += q[g, c] * kc
                    s1 += q[g + 1, c] * kc
                    s2 += q[g + 2, c] * kc
                scores[g, i + j] = s0 * scale
                scores[g + 1, i + j] = s1 * scale
                scores[g + 2, i + j] = s2 * scale
            i += piece
            b += 1
    for g in range(heads - heads % 3, heads):
        i = 0
        b = 0
        while i < count:
            base = np.int64(table[b])
            for j in range(min(piece, count - i)):
                s0 = _F(0)
                for c in range(d):
                    s0 += q[g, c] * k[(base + j) * step, c]
                scores[g, i + j] = s0 * scale
            i += piece
            b += 1


@njit(**_OPTIONS)
def _softmax(x, count, bits, power):
    """In place over x[:count]. exp by 2**floor(t) and a polynomial, which vectorises; a call to
    exp for each score would cost more than the scores. `power` is `bits` seen as float32."""
    top = x[0]
    for i in range(1, count):
        top = max(top, x[i])
    for i in range(count):
        t = max((x[i] - top) * _F(1.4426950408889634), _F(-126))
        floor = np.floor(t)
        r = t - floor
        bits[i] = (np.int32(floor) + np.int32(127)) << np.int32(23)
        p = _F(1.8775767e-3)
        p = p * r + _F(8.9893397e-3)
        p = p * r + _F(5.5826318e-2)
        p = p * r + _F(2.4015361e-1)
        p = p * r + _F(6.9315308e-1)
        x[i] = p * r + _F(9.9999994e-1)
    total = _F(0)
    for i in range(count):
        x[i] *= power[i]
        total += x[i]
    inverse = _F(1) / total
    for i in range(count):
        x[i] *= inverse


@njit(**_OPTIONS)
def _mix(scores, v, step, table, piece, count, out):
    """out[g] = sum over tokens of scores[g, i] * v[step * slot of token i]."""
    heads, d = out.shape
    out[:] = 0
    for g in range(0, heads - 2, 3):
        i = 0
        b = 0
        while i < count:
            base = np.int64(table[b])
            for j in range(min(piece, count - i)):
                w0, w1, w2 = scores[g, i + j], scores[g + 1, i + j], scores[g + 2, i + j]
                for c in range(d):
                    vc = v[(base + j) * step, c]
                    out[g, c] += w0 * vc
                    out[g + 1, c] += w1 * vc
                    out[g + 2, c] += w2 * vc
            i += piece
            b += 1
    for g in range(heads - heads % 3, heads):
        i = 0
        b = 0
        while i < count:
            base = np.int64(table[b])
            for j in range(min(piece, count - i)):
                w0 = scores[g, i + j]
                for c in range(d):
                    out[g, c] += w0 * v[(base + j) * step, c]
            i += piece
            b += 1


@njit(**_OPTIONS)
def _finite(bits, start, stop):
    """Are float32 numbers, given as int32, finite? Fast maths may take that for granted, so the
    exponents are looked at."""
    largest = np.int32(0)
    for i in range(start, stop):
        largest = max(largest, bits[i] & np.int32(0x7F800000))
    return largest != np.int32(0x7F800000)


@njit(**_OPTIONS)
def attend(
    qkv,
    k_rows,
    v_rows,
    head_step,
    slot_step,
    table,
    piece,
    rows,
    positions,
    heads,
    window,
    scores,
    bits,
    out,
):
    """Causal attention of each batch row over its sequence, in place in the store.

    qkv [n, ...] with rotated q first; k_rows and v_rows [rows, d_h]; table int32 [sequences,
    pieces]; rows, positions [n]: the row's line in the table and its position; window: how many
    last tokens a row sees, 0 for all; scores float32 [group, longest], bits int32 [longest]:
    scratch; out [n, heads * d_h]. Returns the first row that read a K or V which is no finite
    number, and leaves the others undone; -1 when there is none.
    """
    d = k_rows.shape[1]
    kv_heads = (qkv.shape[1] // d - heads) // 2
    group = heads // kv_heads
    scale = _F(1) / np.sqrt(_F(d))
    power = bits.view(np.float32)
    score_bits, out_bits = scores.view(np.int32), out.view(np.int32)
    for n in range(len(rows)):
        count = positions[n] + 1
        line = table[rows[n]]
        for h in range(kv_heads):
            at = h * group * d
            q = qkv[n, at : at + group * d].reshape(group, d)
            o = out[n, at : at + group * d].reshape(group, d)
            k = k_rows[h * head_step :]
            _scores(q, k, slot_step, line, piece, count, scale, scores)
            for g in range(group):
                if window:
                    scores[g, : max(count - window, 0)] = _UNSEEN
                if not _finite(score_bits[g], 0, count):
                    return n
                _softmax(scores[g], count, bits, power)
            v = v_rows[h * head_step :]
            _mix(scores, v, slot_step, line, piece, count, o)
            if not _finite(out_bits[n], at, at + group * d):
                return n
    return -1


@njit(cache=True, nogil=True)
def _mix64(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def sample(logits, temperature, seed, requests, positions, banned, out):
    """out[n] = a token drawn from softmax(logits / temperature); 0 is greedy.

    The draw depends on (seed, request, position) only (splitmix64 as a counter), so every lane
    draws the same token from the same logits. `banned` int64 [any]: tokens that are never drawn;
    their logits are overwritten.
    """
    vocab = logits.shape[1]
    weights = np.empty(vocab, np.float64)
    for n in range(len(requests)):
        for token in banned:
            logits[n, token] = -np.inf
        best = 0
        for i in range(1, vocab):
            if logits[n, i] > logits[n, best]:
                best = i
        out[n] = best
        if temperature <= 0:
            continue
        total = 0.0
        for i in range(vocab):
            t = (logits[n, i] - logits[n, best]) / temperature
            w = np.exp(t) if t > _NEVER_DRAWN else 0.0
            weights[i] = w
            total += w
        key = _mix64(np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(requests[n]))
        key = _mix64(key ^ np.uint64(positions[n]))
        left = np.float64(key >> np.uint64(11)) / 9007199254740992.0 * total
        for i in range(vocab):
            left -= weights[i]
            if left < 0:
                out[n] = i
                break
