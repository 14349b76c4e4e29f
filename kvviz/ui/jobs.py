"""Long work of a session, in a thread: started by a page, watched by it, cancelled with it.

One job at a time in the whole server uses the cores; a second one waits its turn.
"""

from __future__ import annotations

import threading
from typing import Protocol

import streamlit as st

from kvviz.sweeps.job import Cancelled, Job, Told, Work

REFRESH_SECONDS = 0.5


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Desk:
    """The jobs of one session, by the page that started them; `kept` are those of other kinds."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.kept: dict[str, Cancellable] = {}

    def start(self, name: str, work: Work) -> Job:
        """Replaces the last job of that name, which is cancelled if it still runs."""
        if name in self.jobs:
            self.jobs[name].cancel()
        self.jobs[name] = Job(_in_turn(work, _turns()))
        return self.jobs[name]

    def keep(self, name: str, job: Cancellable) -> None:
        """In place of the last one of that name, which is cancelled."""
        if name in self.kept:
            self.kept[name].cancel()
        self.kept[name] = job

    def close(self) -> None:
        for job in (*self.jobs.values(), *self.kept.values()):
            job.cancel()


@st.cache_resource(scope="session", show_spinner=False, on_release=lambda desk: desk.close())
def desk() -> Desk:
    """This session's. Its jobs are cancelled when the session ends."""
    return Desk()


def watch(job: Job, words: str) -> None:
    """Progress and a Cancel button while the job runs; the page runs again when it has ended."""
    _watch(job, words)


@st.fragment(run_every=REFRESH_SECONDS)
def _watch(job: Job, words: str) -> None:
    if not job.running:
        st.rerun()
    p = job.progress
    left, right = st.columns([5, 1], vertical_alignment="center")
    share = (p.done + p.failed) / p.total if p.total else 0.0
    kept = f", {p.kept:,} of them read from disk" if p.kept else ""
    left.progress(share, text=f"{p.done:,} of {p.total:,} {words}{kept}")
    if right.button("Cancel", key=f"cancel-{words}", disabled=job.cancelled, width="stretch"):
        job.cancel()


@st.cache_resource(show_spinner=False)
def _turns() -> threading.Lock:
    return threading.Lock()


def _in_turn(work: Work, turns: threading.Lock) -> Work:
    def wait(told: Told, cancelled: Cancelled) -> dict:
        while not turns.acquire(timeout=0.2):
            if cancelled():
                return {}
        try:
            return work(told, cancelled)
        finally:
            turns.release()

    return wait
