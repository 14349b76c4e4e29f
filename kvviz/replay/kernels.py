"""The step rule of `engine.scheduler` on columns of integers, from event to event (numba).

A running sequence changes memory only where it crosses a block boundary. So decoding sequences
stand in one list for each phase, (step mod block size) of their next crossing, and in one for
the step in which they finish; a step looks at its two lists, and steps in which nothing arrives,
finishes or crosses are leapt over. What a decoding sequence has written is not stored: at the
start of step s it is `s - BASE`.

    phase 0  phase 1  phase 2  phase 3        block size 4, step 9: only 2 and 7 need a block
      5        2 7      1        3 4

All lists are ordered as the running list is (by TURN, the number of the admission), because the
order decides who gets which slots and who is preempted. Everything is in slots. One file, since
numba's cache on disk notices changes in the file of the outermost function only.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_OPTIONS = {"cache": True, "nogil": True, "boundscheck": False, "error_model": "numpy"}
# What only other kernels call needs no door for Python: half of the time to compile
_INNER = {
    "boundscheck": False,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}

# Columns of a request's row in `q` int32 [n, COLUMNS]. ASK: slots wanted at admission whatever is
# known (0: as many as tokens are). A to C: the lists it stands in, previous and next. What a
# crossing touches comes first: rows of 128 bytes keep it in one line of the processor's cache.
TURN, BASE, TAIL, HELD, STATE, LIFE, A, A_NEXT, B, B_NEXT, C, C_NEXT = range(12)
PROMPT, ASK, ARRIVAL, TOKENS, WRITTEN, REFUSED, FIRST, DONE, START, GRANT, SINCE = range(12, 23)
COLUMNS = 32

# States
WAITING, PREFILL, DECODING, FINISHED, DROPPED = range(1, 6)

# Lists in `ends` int32 [lists, 2] of (first, last): A holds WAIT or RUN, B holds UNJUDGED, FILL or
# a phase, C a step to finish in. Phases begin at PHASES, steps to finish behind them.
WAIT, RUN, UNJUDGED, FILL, PHASES = range(5)

# Kinds of memory
PAGED, FIRST_FIT, BEST_FIT = range(3)

# Settings in `p` int64. IDS: keep which blocks a sequence has. Only a map needs that, and it is
# half of the time.
KIND, GRAIN, BUDGET, MOST, CHUNK, QUEUE, CAPACITY, WATERMARK, GROWS, CAP, RING, IDS = range(12)
SETTINGS = 12

# Scalars in `s` int64
STEP, CURSOR, FREE, RUNNING, WAITS, DECODES, TURNS, TOP, HOLES, WROTE, GENERATED = range(11)
N_ADMITTED, N_FINISHED, N_PREEMPTED, N_DROPPED, N_RECOMPUTED, N_MOVED, PASSES = range(11, 18)
REFUSALS = 18  # four counts, by verdict
V_KIND, V_NEED, V_FREE, V_LARGEST, EVENTS, SAMPLES, STRIDE = range(22, 29)
SCALARS = 29

# Verdicts, in the order of `records.REFUSALS`, and admitted
NEVER, CAPACITY_, FRAGMENTED, QUEUED, ADMITTED = range(5)

# Kinds of events
ARRIVE, ADMIT, REFUSE, DROP_FULL, DROP_NEVER, MOVE, PREEMPT, FINISH = range(8)
EVENT_FIELDS = 8

# Sums over steps in `sums` float64, and the columns of a sample
S_FREE, S_ADMISSIBLE, S_WRITTEN, S_RUNNING, S_WAITING = range(5)
SAMPLE_FIELDS = 9

_BITS = 32
_LATE = 1 << 31


@njit(**_INNER)
def _append(q, ends, k, col, i):
    last = ends[k, 1]
    q[i, col] = last
    q[i, col + 1] = -1
    if last < 0:
        ends[k, 0] = i
    else:
        q[last, col + 1] = i
    ends[k, 1] = i


@njit(**_INNER)
def _prepend(q, ends, k, col, i):
    first = ends[k, 0]
    q[i, col] = -1
    q[i, col + 1] = first
    if first < 0:
        ends[k, 1] = i
    else:
        q[first, col] = i
    ends[k, 0] = i


@njit(**_INNER)
def _insert(q, ends, k, col, i):
    """By TURN, from the end: who comes late stands late."""
    before = ends[k, 1]
    while before >= 0 and q[before, TURN] > q[i, TURN]:
        before = q[before, col]
    if before < 0:
        _prepend(q, ends, k, col, i)
        return
    after = q[before, col + 1]
    q[i, col] = before
    q[i, col + 1] = after
    q[before, col + 1] = i
    if after < 0:
        ends[k, 1] = i
    else:
        q[after, col] = i


@njit(**_INNER)
def _remove(q, ends, k, col, i):
    before, after = q[i, col], q[i, col + 1]
    if before < 0:
        ends[k, 0] = after
    else:
        q[before, col + 1] = after
    if after < 0:
        ends[k, 1] = before
    else:
        q[after, col] = before


@njit(**_INNER)
def _note(s, log, kind, i, verdict, need, free, largest, slots):
    if len(log):
        at = s[EVENTS]
        if at < len(log):
            log[at, 0] = s[STEP]
            log[at, 1] = kind
            log[at, 2] = i
            log[at, 3] = verdict
            log[at, 4] = need
            log[at, 5] = free
            log[at, 6] = largest
            log[at, 7] = slots
        s[EVENTS] = at + 1


# Holes: `keys` int64, ascending, size then start; `low_of[end]` and `size_of[start]` find
# neighbours; `tree` (first fit) is `allocators.maxtree.MaxTree`.


@njit(**_INNER)
def _put(tree, at, size):
    leaves = len(tree) >> 1
    at += leaves
    old = tree[at]
    tree[at] = size
    if size >= old:
        while at > 1 and tree[at >> 1] < size:
            at >>= 1
            tree[at] = size
        return
    while at > 1:
        other = tree[at ^ 1]
        if other > size:
            size = other
        at >>= 1
        if tree[at] == size:
            return
        tree[at] = size


@njit(**_INNER)
def _at(keys, count, key):
    """Index of the first key that is not smaller."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**_INNER)
def _swap_key(s, keys, old, new):
    """One key goes and another comes (-1: none): what lies between them moves by one."""
    count = s[HOLES]
    if old < 0:
        to = _at(keys, count, new)
        for j in range(count, to, -1):
            keys[j] = keys[j - 1]
        keys[to] = new
        s[HOLES] = count + 1
        return
    at = _at(keys, count, old)
    if new < 0:
        for j in range(at, count - 1):
            keys[j] = keys[j + 1]
        s[HOLES] = count - 1
        return
    while at > 0 and keys[at - 1] > new:
        keys[at] = keys[at - 1]
        at -= 1
    while at < count - 1 and keys[at + 1] < new:
        keys[at] = keys[at + 1]
        at += 1
    keys[at] = new


@njit(**_INNER)
def _cut(p, s, tree, keys, size_of, low_of, start, taken):
    """The low slots of this hole are used now."""
    size = np.int64(size_of[start])
    rest = size - taken
    size_of[start] = 0
    old = size << _BITS | start
    if rest:
        size_of[start + taken] = rest
        low_of[start + size] = start + taken
        _swap_key(s, keys, old, rest << _BITS | (start + taken))
    else:
        low_of[start + size] = -1
        _swap_key(s, keys, old, -1)
    if p[KIND] == FIRST_FIT:
        if rest:
            _put(tree, start + taken, rest)
        _put(tree, start, 0)
    s[FREE] -= taken


@njit(**_INNER)
def _allocate(p, s, tree, keys, size_of, low_of, need):
    """Start of the region; the caller knows that there is a hole for it."""
    if p[KIND] == FIRST_FIT:
        leaves = len(tree) >> 1
        at = 1
        while at < leaves:
            at <<= 1
            if tree[at] < need:
                at += 1
        start = at - leaves
    else:
        start = keys[_at(keys, s[HOLES], need << _BITS)] & ((1 << _BITS) - 1)
    _cut(p, s, tree, keys, size_of, low_of, start, need)
    return start


@njit(**_INNER)
def _give_back(p, s, tree, keys, size_of, low_of, start, size):
    """The region is a hole now, merged with those beside it."""
    s[FREE] += size
    low, end = start, start + size
    old = np.int64(-1)
    below, above = np.int64(low_of[start]), np.int64(size_of[end])
    if below >= 0:
        low = below
        old = (start - below) << _BITS | below
        low_of[start] = -1
    if above:
        if old >= 0:
            _swap_key(s, keys, old, -1)
        old = above << _BITS | end
        size_of[end] = 0
        end += above
    _swap_key(s, keys, old, (end - low) << _BITS | low)
    size_of[low] = end - low
    low_of[end] = low
    if p[KIND] == FIRST_FIT:
        _put(tree, low, end - low)
        if above:
            _put(tree, start + size, 0)


@njit(**_INNER)
def _largest(p, s, keys):
    """What `Layout.admissible` is."""
    if p[KIND] == PAGED:
        if s[RUNNING] == 0:
            return s[FREE]
        return max(np.int64(0), s[FREE] - p[WATERMARK])
    if s[HOLES] == 0:
        return np.int64(0)
    return keys[s[HOLES] - 1] >> _BITS


@njit(**_INNER)
def _up(p, count):
    grain = p[GRAIN]
    return (count + grain - 1) // grain * grain


@njit(**_INNER)
def _judge(p, s, q, keys, i):
    """`Layout.question`: the verdict is left in the scalars; returns its kind."""
    tokens = np.int64(q[i, TOKENS])
    largest = _largest(p, s, keys)
    need = _up(p, max(np.int64(q[i, ASK]), min(tokens, p[CAP])))
    life = _up(p, np.int64(q[i, LIFE]))
    if life > p[CAPACITY]:
        need = max(need, life)
    if need > p[CAPACITY]:
        kind = NEVER
    elif need <= largest:
        kind = ADMITTED
    elif need > s[FREE] or p[KIND] == PAGED:
        kind = CAPACITY_
    else:
        kind = FRAGMENTED
    s[V_KIND], s[V_NEED], s[V_FREE], s[V_LARGEST] = kind, need, s[FREE], largest
    return kind


@njit(**_INNER)
def _refuse(s, q, log, i, kind):
    """Count the first refusal; the verdict stands in the scalars."""
    if q[i, REFUSED] < 0:
        q[i, REFUSED] = kind
        s[REFUSALS + kind] += 1
        _note(s, log, REFUSE, i, kind, s[V_NEED], s[V_FREE], s[V_LARGEST], 0)


@njit(**_INNER)
def _drop(s, q, log, i, why):
    s[N_DROPPED] += 1
    q[i, STATE] = DROPPED
    _note(s, log, why, i, -1, 0, 0, 0, 0)


@njit(**_INNER)
def _submit(p, s, q, ends, keys, log, i):
    _note(s, log, ARRIVE, i, -1, 0, 0, 0, q[i, LIFE])
    if s[WAITS] >= p[QUEUE]:
        kind = _judge(p, s, q, keys, i)
        _refuse(s, q, log, i, QUEUED if kind == ADMITTED else kind)
        _drop(s, q, log, i, DROP_FULL)
        return
    q[i, STATE] = WAITING
    s[WAITS] += 1
    _append(q, ends, WAIT, A, i)
    _append(q, ends, UNJUDGED, B, i)


@njit(**_INNER)
def _take(p, s, q, link, i, size):
    """Blocks from the top of the free chain to the end of the sequence's chain."""
    count = size // p[GRAIN]
    if count <= 0:
        return
    s[FREE] -= size
    if not p[IDS]:
        q[i, HELD] += size
        return
    first = s[TOP]
    last = first
    for _ in range(count - 1):
        last = link[last]
    s[TOP] = link[last]
    if q[i, HELD]:
        link[q[i, TAIL]] = first
    else:
        q[i, START] = first
    q[i, TAIL] = last
    q[i, HELD] += size


@njit(**_INNER)
def _release(p, s, q, link, tree, keys, size_of, low_of, i):
    size = np.int64(q[i, HELD])
    q[i, HELD] = 0
    if p[KIND] == PAGED:
        s[FREE] += size
        if size and p[IDS]:  # the head of the sequence is handed out first
            link[q[i, TAIL]] = s[TOP]
            s[TOP] = q[i, START]
    elif size:
        _give_back(p, s, tree, keys, size_of, low_of, np.int64(q[i, START]), size)


@njit(**_INNER)
def _leave(p, s, q, ends, i):
    """Out of the running list, and of all that a running sequence stands in."""
    _remove(q, ends, RUN, A, i)
    s[RUNNING] -= 1
    if q[i, STATE] == PREFILL:
        _remove(q, ends, FILL, B, i)
        return
    s[DECODES] -= 1
    _unlist(p, q, ends, i)


@njit(**_INNER)
def _ends_in(p, q, i):
    """List of the step in which a decoding sequence finishes."""
    return PHASES + p[GRAIN] + ((q[i, BASE] + q[i, LIFE] - 1) & p[RING])


@njit(**_INNER)
def _unlist(p, q, ends, i):
    if p[GROWS]:
        _remove(q, ends, PHASES + q[i, BASE] % p[GRAIN], B, i)
    _remove(q, ends, _ends_in(p, q, i), C, i)


@njit(**_INNER)
def _enlist(p, q, ends, i):
    if p[GROWS]:
        _insert(q, ends, PHASES + q[i, BASE] % p[GRAIN], B, i)
    _insert(q, ends, _ends_in(p, q, i), C, i)


@njit(**_INNER)
def _put_off(p, q, ends, i):
    """A decoding sequence gets no token in this step."""
    _remove(q, ends, _ends_in(p, q, i), C, i)
    phased = p[GROWS] and p[GRAIN] > 1  # else all stand in one phase
    if phased:
        _remove(q, ends, PHASES + q[i, BASE] % p[GRAIN], B, i)
    q[i, BASE] += 1
    _insert(q, ends, _ends_in(p, q, i), C, i)
    if phased:
        _insert(q, ends, PHASES + q[i, BASE] % p[GRAIN], B, i)


@njit(**_INNER)
def _preempt(p, s, q, ends, link, tree, keys, size_of, low_of, log, i, starved):
    """Its slots are freed and it goes to the head of the queue. `starved`: the TURN from which
    on the sequences of this step were put off by one, BASE included."""
    if q[i, STATE] == DECODING:
        written = s[STEP] - q[i, BASE] + (q[i, TURN] >= starved)
        q[i, TOKENS] = written + 1
    else:
        written = np.int64(q[i, WRITTEN])
    _leave(p, s, q, ends, i)
    s[N_PREEMPTED] += 1
    _note(s, log, PREEMPT, i, s[V_KIND], s[V_NEED], s[V_FREE], s[V_LARGEST], written)
    s[N_RECOMPUTED] += written
    s[WROTE] -= written
    _release(p, s, q, link, tree, keys, size_of, low_of, i)
    q[i, WRITTEN] = 0
    q[i, STATE] = WAITING
    s[WAITS] += 1
    _prepend(q, ends, WAIT, A, i)
    if q[i, REFUSED] < 0:
        _prepend(q, ends, UNJUDGED, B, i)


@njit(**_INNER)
def _grow(p, s, q, link, tree, keys, size_of, low_of, log, i, written, count):
    """`Layout.append`: room for `count` tokens more, or False and the verdict in the scalars."""
    short = _up(p, written + count) - q[i, HELD]
    if short <= 0:
        return True
    if p[KIND] == PAGED:
        if short <= s[FREE]:
            _take(p, s, q, link, i, short)
            return True
        s[V_KIND] = NEVER if short > p[CAPACITY] else CAPACITY_
        s[V_NEED], s[V_FREE], s[V_LARGEST] = short, s[FREE], s[FREE]
        return False
    start, size = np.int64(q[i, START]), np.int64(q[i, HELD])
    behind = start + size
    if size_of[behind] >= short:
        _cut(p, s, tree, keys, size_of, low_of, behind, short)
        q[i, HELD] += short
        return True
    total = size + short
    largest = _largest(p, s, keys)
    if total <= largest:
        q[i, START] = _allocate(p, s, tree, keys, size_of, low_of, total)
        q[i, HELD] = total
        _give_back(p, s, tree, keys, size_of, low_of, start, size)
        s[N_MOVED] += written
        _note(s, log, MOVE, i, ADMITTED, count, s[FREE], _largest(p, s, keys), written)
        return True
    s[V_FREE], s[V_LARGEST] = s[FREE], largest
    if short > s[FREE]:
        s[V_KIND], s[V_NEED] = CAPACITY_, total
    else:
        s[V_KIND], s[V_NEED] = FRAGMENTED, short
    return False


@njit(**_INNER)
def _grants(p, s, q, ends):
    """Share out the token budget, oldest first: GRANT of those that still prefill. Returns what
    is left, the TURN from which on decoding sequences get nothing, and how many those are."""
    demand = s[DECODES]
    i = ends[FILL, 0]
    while i >= 0:
        q[i, GRANT] = min(np.int64(q[i, TOKENS] - q[i, WRITTEN]), p[CHUNK])
        demand += q[i, GRANT]
        i = q[i, B_NEXT]
    if demand <= p[BUDGET]:
        return p[BUDGET] - demand, _LATE, 0
    left = p[BUDGET]
    late, starved = _LATE, 0
    i = ends[RUN, 0]
    while i >= 0:
        if q[i, STATE] == PREFILL:
            q[i, GRANT] = min(np.int64(q[i, GRANT]), left)
            left -= q[i, GRANT]
        elif left > 0:
            left -= 1
        else:
            late = min(late, np.int64(q[i, TURN]))
            starved += 1
            _put_off(p, q, ends, i)
        i = q[i, A_NEXT]
    return left, late, starved


@njit(**_INNER)
def _continue_running(p, s, q, ends, link, tree, keys, size_of, low_of, log):
    """Part 1 of a step. Returns what is left of the budget."""
    left, late, starved = _grants(p, s, q, ends)
    fill = ends[FILL, 0]
    cross = ends[PHASES + s[STEP] % p[GRAIN], 0] if p[GROWS] else -1
    before = s[N_PREEMPTED]
    while fill >= 0 or cross >= 0:
        if cross >= 0 and q[cross, TURN] >= late:
            cross = -1
            continue
        prefills = cross < 0 or (fill >= 0 and q[fill, TURN] < q[cross, TURN])
        if not prefills and p[KIND] == PAGED and s[FREE] >= p[GRAIN]:
            # Nearly all crossings end here, without the cost of a call with so many arrays
            if p[IDS]:
                block = s[TOP]
                s[TOP] = link[block]
                link[q[cross, TAIL]] = block
                q[cross, TAIL] = block
            q[cross, HELD] += p[GRAIN]
            s[FREE] -= p[GRAIN]
            cross = q[cross, B_NEXT]
            continue
        i = fill if prefills else cross
        written = np.int64(q[i, WRITTEN]) if prefills else s[STEP] - q[i, BASE]
        count = np.int64(q[i, GRANT]) if prefills else 1
        there = True
        while count > 0 and there:
            if _grow(p, s, q, link, tree, keys, size_of, low_of, log, i, written, count):
                break
            victim = ends[RUN, 1]
            starved -= q[victim, STATE] == DECODING and q[victim, TURN] >= late
            _preempt(p, s, q, ends, link, tree, keys, size_of, low_of, log, victim, late)
            there = victim != i
        if not there:
            break  # whoever is younger gave way before
        if prefills:
            q[i, WRITTEN] += count
            s[WROTE] += count
            fill = q[i, B_NEXT]
        else:
            cross = q[i, B_NEXT]
        if s[N_PREEMPTED] != before:
            if fill >= 0 and q[fill, STATE] == WAITING:
                fill = -1
            if cross >= 0 and q[cross, STATE] == WAITING:
                cross = -1
    served = s[DECODES] - starved
    s[WROTE] += served
    s[GENERATED] += served
    s[PASSES] += s[RUNNING] > 0
    return left


@njit(**_INNER)
def _admit(p, s, q, ends, link, tree, keys, size_of, low_of, log, budget):
    """Part 2. Returns True when the next step may admit more though nothing else happens."""
    blocked = False
    idle = s[RUNNING] == 0
    while s[WAITS] and budget > 0 and s[RUNNING] < p[MOST]:
        i = ends[WAIT, 0]
        kind = _judge(p, s, q, keys, i)
        if kind != ADMITTED:
            judged = q[i, REFUSED] >= 0
            _refuse(s, q, log, i, kind)
            if kind != NEVER:
                if not judged:
                    _remove(q, ends, UNJUDGED, B, i)
                blocked = True
                break
            _leave_queue(s, q, ends, i, judged)
            _drop(s, q, log, i, DROP_NEVER)
            continue
        _leave_queue(s, q, ends, i, q[i, REFUSED] >= 0)
        if p[KIND] == PAGED:
            _take(p, s, q, link, i, _up(p, np.int64(q[i, ASK])))
        else:
            q[i, START] = _allocate(p, s, tree, keys, size_of, low_of, s[V_NEED])
            q[i, HELD] = s[V_NEED]
        count = min(np.int64(q[i, TOKENS]), budget, p[CHUNK])
        if p[KIND] == PAGED:
            _take(p, s, q, link, i, _up(p, count) - q[i, HELD])
        _start(s, q, ends, i, count)
        _note(s, log, ADMIT, i, ADMITTED, s[V_NEED], s[V_FREE], s[V_LARGEST], 0)
        budget -= count
    if blocked:
        _judge_queue(p, s, q, ends, keys, log)
    s[PASSES] += idle and s[RUNNING] > 0
    return s[WAITS] > 0 and budget <= 0


@njit(**_INNER)
def _leave_queue(s, q, ends, i, judged):
    _remove(q, ends, WAIT, A, i)
    s[WAITS] -= 1
    if not judged:
        _remove(q, ends, UNJUDGED, B, i)


@njit(**_INNER)
def _start(s, q, ends, i, count):
    q[i, TURN] = s[TURNS]
    s[TURNS] += 1
    q[i, STATE] = PREFILL
    q[i, WRITTEN] = count
    s[WROTE] += count
    q[i, SINCE] = s[STEP]
    if q[i, FIRST] < 0:
        q[i, FIRST] = s[STEP]
    s[RUNNING] += 1
    s[N_ADMITTED] += 1
    _append(q, ends, RUN, A, i)
    _append(q, ends, FILL, B, i)


@njit(**_INNER)
def _judge_queue(p, s, q, ends, keys, log):
    """First verdicts for those behind a head that memory refused."""
    i = ends[UNJUDGED, 0]
    while i >= 0:
        after = q[i, B_NEXT]
        kind = _judge(p, s, q, keys, i)
        _refuse(s, q, log, i, QUEUED if kind == ADMITTED else kind)
        if kind == NEVER:
            _remove(q, ends, WAIT, A, i)
            s[WAITS] -= 1
            _drop(s, q, log, i, DROP_NEVER)
        i = after
    ends[UNJUDGED, 0] = ends[UNJUDGED, 1] = -1


@njit(**_INNER)
def _advance(p, s, q, ends, link, tree, keys, size_of, low_of, log):
    """Computed prompts yield their first token; who is done leaves, oldest first."""
    i = ends[FILL, 0]
    while i >= 0:
        after = q[i, B_NEXT]
        if q[i, WRITTEN] == q[i, TOKENS]:
            _remove(q, ends, FILL, B, i)
            q[i, STATE] = DECODING
            q[i, BASE] = s[STEP] + 1 - q[i, WRITTEN]
            s[DECODES] += 1
            s[GENERATED] += 1
            _enlist(p, q, ends, i)
        i = after
    k = PHASES + p[GRAIN] + (s[STEP] & p[RING])
    finished = ends[k, 0] >= 0
    while ends[k, 0] >= 0:
        i = ends[k, 0]
        _leave(p, s, q, ends, i)
        _release(p, s, q, link, tree, keys, size_of, low_of, i)
        s[WROTE] -= q[i, LIFE]
        s[N_FINISHED] += 1
        q[i, STATE] = FINISHED
        q[i, DONE] = s[STEP]
        _note(s, log, FINISH, i, -1, 0, 0, 0, q[i, LIFE])
    return finished


@njit(**_INNER)
def _step(p, s, q, ends, link, tree, keys, size_of, low_of, log):
    """One step; True when the next one must be done too, whatever the lists say."""
    while s[CURSOR] < len(q) and q[s[CURSOR], ARRIVAL] <= s[STEP]:
        _submit(p, s, q, ends, keys, log, s[CURSOR])
        s[CURSOR] += 1
    before = s[N_PREEMPTED]
    left = _continue_running(p, s, q, ends, link, tree, keys, size_of, low_of, log)
    more = True
    if s[N_PREEMPTED] == before:
        more = _admit(p, s, q, ends, link, tree, keys, size_of, low_of, log, left)
    finished = _advance(p, s, q, ends, link, tree, keys, size_of, low_of, log)
    return more or finished or ends[FILL, 0] >= 0 or s[DECODES] > p[BUDGET] or s[RUNNING] == 0


@njit(**_INNER)
def _ask(p, s, q, ends, keys):
    """Slots that the next request needs: the head of the queue, else who arrives next."""
    i = np.int64(ends[WAIT, 0])
    if i < 0:
        i = s[CURSOR]
        if i >= len(q):
            return np.int64(1)
    _judge(p, s, q, keys, i)
    return s[V_NEED]


@njit(**_INNER)
def _sample(p, s, q, ends, keys, samples, step, ahead):
    """A row of `samples`; with all of them taken, every second one goes and the stride doubles."""
    if s[SAMPLES] == len(samples):
        for j in range(len(samples) // 2):
            samples[j] = samples[2 * j]
        s[SAMPLES] = (len(samples) + 1) // 2
        s[STRIDE] *= 2
        if step % s[STRIDE]:
            return
    over = np.int64(0)
    i = ends[RUN, 0]
    while i >= 0:
        over += max(0, q[i, HELD] - q[i, LIFE])
        i = q[i, A_NEXT]
    stuck = np.int64(0)
    if p[KIND] != PAGED:
        ask = _ask(p, s, q, ends, keys)
        for j in range(s[HOLES]):
            size = keys[j] >> _BITS
            if size >= ask:
                break
            stuck += size
    row = samples[s[SAMPLES]]
    row[0], row[1], row[2] = step, s[FREE], _largest(p, s, keys)
    row[3], row[4], row[5] = s[WROTE] + ahead, s[RUNNING], s[WAITS]
    row[6] = s[GENERATED] + ahead
    row[7], row[8] = over, stuck
    s[SAMPLES] += 1


@njit(**_INNER)
def _record(p, s, q, ends, keys, sums, busy, samples, until):
    """The steps [STEP, until): nothing changes after the first but what decoding writes."""
    steps = until - s[STEP]
    decodes = s[DECODES]
    sums[S_FREE] += s[FREE] * steps
    sums[S_ADMISSIBLE] += _largest(p, s, keys) * steps
    sums[S_WRITTEN] += s[WROTE] * steps + decodes * (steps * (steps - 1) // 2)
    sums[S_RUNNING] += s[RUNNING] * steps
    sums[S_WAITING] += s[WAITS] * steps
    busy[s[RUNNING]] += steps
    step = (s[STEP] + s[STRIDE] - 1) // s[STRIDE] * s[STRIDE]
    while step < until:
        _sample(p, s, q, ends, keys, samples, step, decodes * (step - s[STEP]))
        step = (step // s[STRIDE] + 1) * s[STRIDE]
    s[WROTE] += decodes * (steps - 1)
    s[GENERATED] += decodes * (steps - 1)
    if s[RUNNING]:
        s[PASSES] += steps - 1
    s[STEP] = until


@njit(**_OPTIONS)
def serve(p, s, q, ends, link, tree, keys, size_of, low_of, log, sums, busy, samples, until, most):
    """Serve until all is done or step `until` comes, at most `most` events. True: all is done.

    link int32 [blocks]; tree, size_of, low_of int32 and keys int64 as above (of one element where
    the layout has no use for them); log int64 [events, EVENT_FIELDS] (none: not kept); sums
    float64 [5]; busy int64 [most running + 1], steps by number of running; samples int64
    [points, SAMPLE_FIELDS].
    """
    n = len(q)
    done = 0
    while s[STEP] < until and done < most:
        done += 1
        if s[RUNNING] == 0 and s[WAITS] == 0:
            if s[CURSOR] == n:
                return True
            arrival = min(np.int64(q[s[CURSOR], ARRIVAL]), until)
            if arrival > s[STEP]:
                _record(p, s, q, ends, keys, sums, busy, samples, arrival)
                continue
        again = _step(p, s, q, ends, link, tree, keys, size_of, low_of, log)
        t = s[STEP] + 1
        if not again:
            arrival = np.int64(q[s[CURSOR], ARRIVAL]) if s[CURSOR] < n else until
            last = min(arrival, until)
            finishes = PHASES + p[GRAIN]
            while (
                t < last
                and ends[finishes + (t & p[RING]), 0] < 0
                and (not p[GROWS] or ends[PHASES + t % p[GRAIN], 0] < 0)
            ):
                t += 1
        _record(p, s, q, ends, keys, sums, busy, samples, t)
    return s[RUNNING] == 0 and s[WAITS] == 0 and s[CURSOR] == n


@njit(**_OPTIONS)
def judge(p, s, q, keys, i):
    """For Python: see `_judge`."""
    return _judge(p, s, q, keys, i)
