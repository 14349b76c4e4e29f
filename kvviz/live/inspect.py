"""What is known of one request or one place in memory at one step: plain facts, as copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.engine import Engine
from kvviz.engine.lanes import Lanes
from kvviz.engine.orders import Orders
from kvviz.live.past import Past
from kvviz.metrics import holes
from kvviz.records import HOLE, Event, Snapshot

RUNS_SHOWN = 256
LIFE_SHOWN = 40
TEXT_SHOWN = 600  # bytes
_SEARCHED = 640  # steps that are looked through for who left a hole
_CHUNK = 32
_NAMED = 12  # requests of a list


def request_facts(lanes: Lanes, past: Past, step: int, request: int) -> dict[str, Any]:
    """{lane: what the request is, was and holds there}; empty where a lane never saw it."""
    shots = past.shots(step)
    return {
        name: _in_lane(
            lanes.engines[name], past.orders[name], shot, request, shot.step == past.last
        )
        for name, shot in shots.items()
    }


def hole_facts(past: Past, step: int, lane: str, slot: int) -> dict[str, Any] | None:
    """The free run of rows around this slot, who left the slot, and who of the queue fits in it;
    None when the slot is not free."""
    shot = past.shots(step)[lane]
    c = shot.columns
    row = _row(shot, slot)
    if c.owner[row] != HOLE:
        return None
    low, high = row, row
    joins = shot.paged and not shot.single
    while low > 0 and c.owner[low - 1] == HOLE and joins:
        low -= 1
    while high + 1 < len(c.owner) and c.owner[high + 1] == HOLE and joins:
        high += 1
    start = int(c.start[low])
    size = int(c.start[high] + c.size[high]) - start
    room = shot.free if shot.paged else size
    fits = [i for i, n in zip(shot.waiting_id.tolist(), shot.waiting_need.tolist(), strict=True)
            if n <= room]  # fmt: skip
    left_by, left_at, searched = _who_left(past, shot.step, lane, slot)
    return {
        "lane": lane,
        "slot": slot,
        "start": start,
        "size": size,
        "left_by": left_by,
        "left_at": left_at,
        "searched_from": searched,
        "largest": shot.admissible if shot.paged else size,
        "fits": fits[:12],
        "waiting": int(shot.counters.waiting),
    }


def differences(past: Past, one: int, two: int) -> dict[str, Any]:
    """From the moment `one` to the moment `two`, lane by lane: who came, who went, how free
    slots and holes changed."""
    before, after = past.shots(one), past.shots(two)
    found = {}
    for name, a in before.items():
        b = after[name]
        old, new = set(a.seq_id.tolist()), set(b.seq_id.tolist())
        found[name] = {
            "came": sorted(new - old)[:_NAMED],
            "went": sorted(old - new)[:_NAMED],
            "came_count": len(new - old),
            "went_count": len(old - new),
            "free": [a.free, b.free],
            "admissible": [a.admissible, b.admissible],
            "holes": [len(holes(a)), len(holes(b))],
        }
    steps = [next(iter(shots.values())).step for shots in (before, after)]
    return {"steps": steps, "lanes": found}


def cause(event: Event) -> str:
    """Why, of a refusal or a preemption, with the numbers that decided it."""
    if not event.verdict:
        return event.text
    numbers = f"needs {event.need:,}, free {event.free:,}, largest {event.largest:,}"
    why = {
        "fragmented": "enough is free, but in pieces",
        "capacity": "too little is free",
        "never": "larger than the pool can ever grant",
        "queued": "behind a head that waits",
        "admitted": "",
    }[event.verdict]
    return f"{numbers}: {why}" if why else numbers


def _in_lane(
    engine: Engine, orders: Orders, shot: Snapshot, request: int, newest: bool
) -> dict[str, Any]:
    life = [e for e in engine.recorder.events if e.request == request and e.step < shot.step]
    facts: dict[str, Any] = {
        "state": _state(shot, request, life),
        "life": [
            {"step": e.step + 1, "kind": e.kind, "verdict": e.verdict, "slots": e.slots,
             "text": cause(e)}
            for e in life[-LIFE_SHOWN:]
        ],
    }  # fmt: skip
    at = np.flatnonzero(shot.seq_id == request)
    written = 0
    if len(at):
        i = at[0]
        written = int(shot.seq_used[i])
        facts |= {
            "prompt": int(shot.seq_prompt[i]),
            "written": written,
            "life_slots": int(shot.seq_life[i]),
            "held": int(shot.seq_held[i]),
            "held_bytes": int(shot.seq_held[i]) * shot.slot_bytes,
            "since": int(shot.seq_since[i]) + 1,
        }
        facts |= _place(shot, request, orders.slots(shot.step, request, written))
        if newest:
            facts |= _tensors(engine, request, facts["runs"])
    waiting = np.flatnonzero(shot.waiting_id == request)
    if len(waiting):
        facts |= {"place": int(waiting[0]) + 1, "need": int(shot.waiting_need[waiting[0]])}
    facts |= _text(engine, request, written)
    return facts


def _state(shot: Snapshot, request: int, life: list[Event]) -> str:
    if request in shot.seq_id:
        return "running"
    if request in shot.waiting_id:
        return "waiting"
    if not life:
        return "unknown"
    return {"finish": "finished", "drop": "turned away"}.get(life[-1].kind, "waiting")


def _place(shot: Snapshot, request: int, slots: np.ndarray | None) -> dict[str, Any]:
    """Runs of slots, as (first token, first slot, slots): in the order of the tokens, or in that
    of the addresses where the block table of then is no longer kept."""
    c = shot.columns
    mine = c.owner == request
    refs = int(c.refs[mine].max()) if mine.any() else 1
    if slots is not None:
        runs, by = _runs(slots, shot.grain if shot.paged else 0), "token"
    else:
        token = np.cumsum(c.used[mine]) - c.used[mine]
        runs = np.stack([token, c.start[mine], c.used[mine]], axis=1)
        by = "address"
    return {
        "runs": runs[:RUNS_SHOWN].tolist(),
        "pieces": len(runs),
        "order": by,
        "refs": refs,
        "grain": shot.grain,
        "paged": shot.paged,
    }


def _runs(slots: np.ndarray, block: int) -> np.ndarray:
    """[runs, 3]: cut where the next slot is not the neighbour, and at the blocks' borders."""
    if not len(slots):
        return np.zeros((0, 3), np.int64)
    cut = np.diff(slots) != 1
    if block:
        cut |= slots[1:] % block == 0
    first = np.concatenate([[0], np.flatnonzero(cut) + 1])
    return np.stack([first, slots[first], np.diff([*first, len(slots)])], axis=1)


def _tensors(engine: Engine, request: int, runs: list[list[int]]) -> dict[str, Any]:
    """Where the first slots lie in the process's memory; nothing when dry."""
    store = getattr(engine.forward, "store", None)
    if store is None or not store.nbytes:
        return {}
    view = store.view  # [L, 2, slots, H_kv, d_h]
    size, steps = view.element_size(), view.stride()
    base = view.data_ptr()
    slots = engine.layout.slots(request)  # of mapped memory: its addresses, not its frames
    first = np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
    return {
        "tensor": {
            "base": hex(base),
            "device": str(view.device),
            "dtype": str(view.dtype).removeprefix("torch."),
            "slot_step": steps[2] * size,
            "value_offset": steps[1] * size,
            "layer_step": steps[0] * size,
            "addresses": [hex(base + int(first[token]) * steps[2] * size) for token, *_ in runs],
        }
    }


def _text(engine: Engine, request: int, written: int) -> dict[str, Any]:
    """Prompt and answer up to what was written, while the lane still has them."""
    text = getattr(engine.forward, "text", None)
    if text is None:
        return {}
    try:
        prompt, answer = text(request)
    except KeyError:
        return {}
    answer = answer[: max(0, written + 1 - len(prompt))] if written else b""
    return {
        "prompt_text": _shown(prompt, tail=False),
        "answer_text": _shown(answer, tail=True),
    }


def _shown(text: bytes, *, tail: bool) -> str:
    cut = text[-TEXT_SHOWN:] if tail else text[:TEXT_SHOWN]
    words = cut.decode("utf-8", "replace")
    if len(cut) == len(text):
        return words
    return f"… {words}" if tail else f"{words} …"


def _row(shot: Snapshot, slot: int) -> int:
    return int(np.searchsorted(shot.columns.start, slot, side="right")) - 1


def _who_left(past: Past, step: int, lane: str, slot: int) -> tuple[int | None, int | None, int]:
    """(the request that held the slot last, the step at which it was free again, the first
    step that was looked at)."""
    history = past.histories[lane]
    end = step
    while end > max(history.first, step - _SEARCHED):
        begin = max(history.first, end - _CHUNK)
        owners = [_owner(history.at(s), slot) for s in range(begin, end)]
        held = [i for i, owner in enumerate(owners) if owner >= 0]
        if held:
            return owners[held[-1]], begin + held[-1] + 1, begin
        end = begin
    return None, None, end


def _owner(shot: Snapshot, slot: int) -> int:
    return int(shot.columns.owner[_row(shot, slot)])
