"""What a link to a run does not carry with it."""

from __future__ import annotations

from kvviz.config import RunConfig
from kvviz.workloads.recorded import FILE


def link_needs(config: RunConfig) -> list[str]:
    """In sentences; none when settings and seed make the same run anywhere."""
    mix, found = config.mix, []
    if mix.trace.startswith(FILE) and "trace" in (mix.prompts, mix.outputs, mix.arrivals):
        found.append(
            f"The requests come from a file (SHA-256 {mix.trace.removeprefix(FILE)}…): whoever "
            "opens the link gives the same file under 'Your own requests'."
        )
    if config.engine.ends == "model":
        found.append(
            "Answers end where the model ends them: on another device it may do so elsewhere."
        )
    return found
