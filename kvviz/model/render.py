"""Renders a chat template in a process of its own: a template is a program, and no sandbox bounds
how long one runs or how much memory it takes. Run as a file, it reads a job from standard input.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache

SECONDS = 1  # of processor time
WAIT_SECONDS = 20.0
MEMORY_BYTES = 1 << 30  # of addresses: an interpreter with jinja2 takes some 100 MB
LONGEST = 1 << 20  # characters of what is rendered


class RenderError(ValueError):
    """The template can't be rendered; the text says why."""


def render(source: str, content: str, names: Mapping[str, str]) -> str:
    """One user message through the template, with a place for the answer behind it. `names`: words
    that the template may write. Raises RenderError."""
    return _rendered(source, content, tuple(sorted(names.items())))


@lru_cache(maxsize=16)
def _rendered(source: str, content: str, names: tuple[tuple[str, str], ...]) -> str:
    job = json.dumps({"source": source, "content": content, "names": dict(names)})
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__],
            input=job.encode(),
            capture_output=True,
            timeout=WAIT_SECONDS,
            check=False,
            env={},
        )
        told = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise RenderError(
            f"it takes more than {SECONDS} s of processor time, or {MEMORY_BYTES >> 20:,} MiB"
        ) from error
    if "error" in told:
        raise RenderError(told["error"])
    return told["text"]


def _limit() -> None:
    """Where the system knows such limits; else only `WAIT_SECONDS` holds."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _run(source: str, content: str, names: Mapping[str, str]) -> dict[str, str]:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    # A fixed day: prompts must not change from one run to the next
    environment.globals["strftime_now"] = lambda _format: "1 January 2025"
    try:
        text = environment.from_string(source).render(
            messages=[{"role": "user", "content": content}], add_generation_prompt=True, **names
        )
        if len(text) > LONGEST:
            return {"error": f"it gives more than {LONGEST:,} characters"}
        text.encode()
    except Exception as error:  # a template can fail in every way that a program can
        return {"error": f"{type(error).__name__}: {str(error)[:400]}"}
    return {"text": text}


if __name__ == "__main__":
    _limit()
    print(json.dumps(_run(**json.load(sys.stdin))))
