"""What a scenario file says, once it is read. Frozen; sizes in slots."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.config import RunConfig

OPS = {
    "allocate": ("name", "slots"),
    "free": ("name",),
    "ask": ("slots",),
    "extend": ("name", "slots"),
    "compact": (),
    "leak": ("slots",),
    "books": ("used", "free", "cached"),
    "repeat": ("times", "ops"),
}


@dataclass(frozen=True)
class Op:
    """One operation on the memory.

    allocate: a region, or blocks, for that many written slots · free · ask: would that size find
    a place, nothing changes · extend: that many slots more · compact: close all holes now · leak:
    slots that nobody holds from now on · books: figures from elsewhere, to be added up · repeat:
    `inner`, `times` over; {i} in a name is the round, from 0.
    """

    kind: str
    name: str = ""
    slots: int = 0
    books: tuple[int, int, int] = (0, 0, 0)
    times: int = 0
    inner: tuple[Op, ...] = ()

    def words(self) -> list:
        """As it is written in a file."""
        if self.kind == "repeat":
            return ["repeat", self.times, [op.words() for op in self.inner]]
        if self.kind == "books":
            return ["books", *self.books]
        given = {"name": self.name, "slots": self.slots}
        return [self.kind, *(given[argument] for argument in OPS[self.kind])]

    @property
    def single_ops(self) -> int:
        """How many operations it stands for."""
        return self.times * sum(op.single_ops for op in self.inner) if self.inner else 1


@dataclass(frozen=True)
class Job:
    """One request. arrive: it comes before the step after this one, 0 before step 1.

    limit: the longest output it may ask for. parked: once its prompt is written it holds its
    slots, and never writes again. output_known: False hides the output's length from the layout,
    which then takes the prompt for all that it needs.
    """

    arrive: int
    prompt: int
    output: int
    limit: int
    samples: int = 1
    priority: int = 0
    parked: bool = False
    output_known: bool = True


@dataclass(frozen=True)
class Scenario:
    """A layout, and either operations on it or requests to serve.

    config: the layout's and the scheduler's settings; its sizes are not held to the bounds of a
    live run. max_len: the longest request that the server must be able to serve, 0 when the file
    does not say.
    """

    title: str
    story: str
    layout: str
    config: RunConfig
    max_len: int
    max_steps: int
    ops: tuple[Op, ...] | None
    jobs: tuple[Job, ...] | None

    @property
    def kind(self) -> str:
        return "requests" if self.ops is None else "ops"
