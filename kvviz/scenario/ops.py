"""Operations on one memory, one after the other. What is refused is told, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvviz.caches.layout import extras_of
from kvviz.errors import ScenarioError
from kvviz.records import ADMITTED, Columns, Verdict
from kvviz.scenario.memory import (
    Frame,
    build,
    figures,
    first_slot,
    life_of,
    moves,
    place,
    spelled,
    start_check,
    why,
)
from kvviz.scenario.parts import Op, Scenario

MAX_WORK = 4_000_000  # rows of maps listed; some seconds


@dataclass
class Outcome:
    """What became of one operation."""

    ok: bool
    verdict: str | None = None
    reason: str = ""
    start: int | None = None
    held: int | None = None
    ask: int = 0
    need: int | None = None
    moved: int = 0
    passes: int | None = None
    difference: int | None = None
    refused: int = 0


class OpsReplay:
    """`rows()` does the operations and tells each. One replay runs once."""

    def __init__(self, scenario: Scenario) -> None:
        assert scenario.ops is not None, "this scenario has requests, not ops"
        self.scenario = scenario
        self.layout = build(scenario)
        self.whole = self.layout.free
        self._live: dict[str, int] = {}
        self._gone: dict[str, tuple[int, str]] = {}
        self._names: dict[int, str] = {}
        self._held = 0
        self._next = 0
        self._row = 0
        self._work = 0.0
        self._do = {
            "allocate": self._allocate,
            "free": self._free,
            "ask": self._ask,
            "extend": self._extend,
            "compact": self._compact,
            "leak": self._leak,
            "books": self._books,
            "repeat": self._repeat,
        }

    def report(self) -> dict[str, Any]:
        """Plain values. Raises ScenarioError when the maps are too long to be told one by one."""
        start = start_check(self.scenario, self.layout)
        refused = start is not None and not start["ok"]
        rows = [] if refused else [row for row, _ in self.rows()]
        extras = extras_of(self.layout)
        return {
            "start": start,
            "ops": rows,
            "alarm": _alarm(rows),
            "extras": {key: int(value) for key, value in extras.items()},
        }

    def rows(self) -> Iterator[tuple[dict[str, Any], Columns]]:
        """(what is told, the map) after each operation."""
        for row, op in enumerate(self.scenario.ops or ()):
            self._row = row
            outcome = self._do[op.kind](op)
            runs_moved = moves(self.layout)
            columns = self.layout.columns()
            self._spend(len(columns.start))
            yield self._told(op, outcome, runs_moved, columns), columns

    def frames(self, first: int, last: int) -> Iterator[Frame]:
        """Maps after operations [first, last), from 0."""
        for index, (row, columns) in enumerate(self.rows()):
            if index >= last:
                return
            if index >= first:
                short = row["need"] if row["verdict"] not in (None, ADMITTED) else 0
                yield Frame(
                    f"{index + 1} {sentence(row['op'])}",
                    columns,
                    self._names,
                    short or 0,
                    row["verdict"] or "",
                )

    def _told(self, op: Op, o: Outcome, runs_moved: int, columns: Columns) -> dict[str, Any]:
        return {
            "op": op.words(),
            "ok": o.ok,
            "verdict": o.verdict,
            "reason": o.reason,
            "start": o.start,
            "held": o.held,
            "need": o.need,
            **figures(self.layout, columns, self.whole, o.ask),
            "slots_moved": o.moved,
            "runs_moved": runs_moved,
            "passes": o.passes,
            "difference": self._balance() if o.difference is None else o.difference,
            "refused": o.refused or int(not o.ok),
        }

    def _balance(self) -> int:
        """Held by names, and free, against the pool: below 0 slots are lost, above 0 they are
        counted twice."""
        return self._held + self.layout.free - self.whole

    def _allocate(self, op: Op) -> Outcome:
        if op.name in self._live:
            return Outcome(False, reason=f"{op.name!r} is live already; free it first")
        id, verdict, passes = self._take(op.slots)
        if verdict.admitted:
            self._live[op.name] = id
            self._names[id] = op.name
            self._held += self.layout.held(id)
        return self._answer(verdict, op.slots, id, passes)

    def _free(self, op: Op) -> Outcome:
        id = self._live.pop(op.name, None)
        if id is None:
            if op.name not in self._gone:
                return Outcome(False, reason=f"nothing live is called {op.name!r}")
            row, where = self._gone[op.name]
            return Outcome(
                False, reason=f"{op.name!r} was freed before, by operation {row}: it held {where}"
            )
        self._gone[op.name] = (self._row + 1, spelled(self.layout, id))
        self._held -= self.layout.held(id)
        self.layout.release(id)
        return Outcome(True)

    def _ask(self, op: Op) -> Outcome:
        verdict = self.layout.question(life_of(self._next, op.slots), op.slots)
        return self._answer(verdict, op.slots, None)

    def _extend(self, op: Op) -> Outcome:
        id = self._live.get(op.name)
        if id is None:
            return Outcome(False, reason=f"nothing live is called {op.name!r}")
        before = self.layout.held(id)
        verdict = self.layout.append(id, op.slots)
        passes = place(self.layout) if verdict.admitted else None
        self._held += self.layout.held(id) - before
        return self._answer(verdict, op.slots, id, passes)

    def _compact(self, _op: Op) -> Outcome:
        compact = getattr(self.layout, "compact", None)
        if compact is None:
            return Outcome(False, reason=f"{self.scenario.layout} has nothing to compact")
        return Outcome(True, moved=compact())

    def _leak(self, op: Op) -> Outcome:
        id, verdict, passes = self._take(op.slots)
        if verdict.admitted:
            self._names[id] = "nobody (leaked)"
        return self._answer(verdict, op.slots, id, passes)

    def _books(self, op: Op) -> Outcome:
        used, free, cached = op.books
        capacity = self.scenario.config.memory.slots
        off = used + free + cached - capacity
        told = f"{used:,} used + {free:,} free + {cached:,} cached against {capacity:,}"
        if off == 0:
            return Outcome(True, difference=0)
        what = f"{-off:,} lost" if off < 0 else f"{off:,} too many (freed twice?)"
        return Outcome(False, reason=f"the books do not balance: {told}: {what}", difference=off)

    def _repeat(self, op: Op) -> Outcome:
        total = Outcome(True)
        for turn in range(op.times):
            for inner in op.inner:
                named = Op(
                    inner.kind,
                    inner.name.replace("{i}", str(turn)),
                    inner.slots,
                    inner.books,
                    inner.times,
                    inner.inner,
                )
                done = self._do[inner.kind](named)
                self._spend(len(self._live) / 50)
                total.moved += done.moved
                if done.passes is not None:
                    total.passes = (total.passes or 0) + done.passes
                if done.ok:
                    continue
                total.refused += done.refused or 1
                if total.ok:
                    total.ok, total.verdict = False, done.verdict
                    total.need, total.ask = done.need, done.ask
                    total.reason = f"round {turn}, {sentence(named.words())}: {done.reason}"
        return total

    def _take(self, slots: int) -> tuple[int, Verdict, int | None]:
        """A new holder of so many written slots; when refused nothing is changed."""
        id, self._next = self._next, self._next + 1
        verdict = self.layout.admit(life_of(id, slots), slots)
        if not verdict.admitted:
            return id, verdict, None
        more = self.layout.append(id, slots)
        if not more.admitted:
            self.layout.release(id)
            return id, more, None
        return id, verdict._replace(moved=verdict.moved + more.moved), place(self.layout)

    def _answer(
        self, verdict: Verdict, ask: int, id: int | None, passes: int | None = None
    ) -> Outcome:
        there = id is not None and self.layout.holds(id)
        return Outcome(
            verdict.admitted,
            verdict.kind,
            why(verdict, self.layout),
            start=first_slot(self.layout, id) if there and id is not None else None,
            held=self.layout.held(id) if there and id is not None else None,
            ask=ask,
            need=verdict.need,
            moved=verdict.moved,
            passes=passes,
        )

    def _spend(self, rows: float) -> None:
        self._work += rows
        if self._work > MAX_WORK:
            raise ScenarioError(
                f"the maps of the first {self._row + 1:,} operations have {MAX_WORK:,} rows "
                "together, which is all that is listed. Put operations into a repeat (which is "
                "told once), or make the pool smaller.",
                field=f"ops[{self._row}]",
            )


def _alarm(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first operation after which the books did not balance: below 0, slots are lost."""
    return next(
        (
            {"operation": place, "difference": row["difference"]}
            for place, row in enumerate(rows, 1)
            if row["difference"]
        ),
        None,
    )


def sentence(words: list[Any]) -> str:
    """["allocate", "a", 1024] -> allocate a 1,024"""
    if words[0] == "repeat":
        return f"repeat {words[1]:,} x ({'; '.join(sentence(w) for w in words[2][:3])})"
    return " ".join(f"{word:,}" if isinstance(word, int) else word for word in words)
