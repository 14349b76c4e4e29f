"""Moves on a pool in the CPU's memory, all of a step in one call (numba).

A pool of small heads is moved in hundreds of pieces of a few KB: from Python, what the calls cost
is a third of the time. Each piece is one memmove, for the two places of a slide overlap.
"""

from __future__ import annotations

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_POSITION = (1 << 32) - 1
_OPTIONS = {"cache": True, "nogil": True, "boundscheck": False}
_TAG_BYTES = 8


@intrinsic
def _memmove(typing_context, target, source, count):
    """C's, between two addresses, of so many bytes."""

    def code(context, builder, signature, arguments):
        target, source, count = arguments
        pointers = [builder.inttoptr(address, cgutils.voidptr_t) for address in (target, source)]
        cgutils.raw_memmove(builder, *pointers, count, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@njit("void(int64, int64, int64[:, ::1])", **_OPTIONS)
def _move(first, step, moves):
    """All `moves` in the run that begins at this address."""
    for i in range(len(moves)):
        source, target, size = moves[i, 0], moves[i, 1], moves[i, 2]
        _memmove(first + target * step, first + source * step, size * step)


@njit("int64(uint8[::1], int64[::1], int64, int64[::1], int64[:, ::1])", **_OPTIONS)
def carry_out(pool, runs, step, tags, moves):
    """Carry out `moves` [n, 4], (source, target, size, request) in slots, in order, in `tags`
    [slots] and in each of the `runs`: those of slots that lie side by side, as the place of their
    first byte in `pool`; step: bytes of a slot in a run. (Run by run, for the moves of one lie
    close together.)

    The tags then name the request of the move, which is not the one that wrote the source when a
    sample gets its own copy of the prompt; -1, which says that a slot holds nothing, stays.

    Returns the index of the first move that would leave the pool, and nothing is done; else -1.
    """
    for i in range(len(moves)):
        source, target, size = moves[i, 0], moves[i, 1], moves[i, 2]
        if min(source, target, size) < 0 or max(source, target) + size > len(tags):
            return i
    for run in runs:
        _move(pool.ctypes.data + run, step, moves)
    _move(tags.ctypes.data, _TAG_BYTES, moves)
    for i in range(len(moves)):
        target, size, request = moves[i, 1], moves[i, 2], moves[i, 3]
        for slot in range(target, target + size):
            if tags[slot] >= 0:
                tags[slot] = request << 32 | tags[slot] & _POSITION
    return -1
