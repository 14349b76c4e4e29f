"""The visitor's own requests, live: a file is read, and the controls go to it.

The file itself is not kept, and no text of it: lengths, arrivals and hash ids are.
"""

from __future__ import annotations

import streamlit as st

from kvviz.errors import ConfigError, KvvizError
from kvviz.ui.text import plain
from kvviz.workloads.lengths import DEFAULT_MIX, mix_names
from kvviz.workloads.recorded import FILE, digest_of, keep, recorded, settings_for
from kvviz.workloads.traces.read import read_trace

UPLOAD_MB = 64
TRACE = "trace"  # the parameter of the address, and the control's key
_KEY, _NAMES, _SAID, _MISSING = "own-file", "own-names", "own-said", "own-missing"
# Settings of a file's mix by the key of their control
_CONTROLS = {
    "mix.trace": TRACE,
    "mix.prompts": "prompts",
    "mix.outputs": "outputs",
    "mix.arrivals": "arrivals",
    "mix.long_share": "long",
    "mix.prefix_share": "prefixed",
}


def own_requests() -> None:
    """The uploader, and what was found in the file."""
    with st.expander("Your own requests"):
        st.file_uploader(
            "A file of requests",
            key=_KEY,
            on_change=_take,
            max_upload_size=UPLOAD_MB,
            help="CSV, JSON or JSON lines, gzip or not: the format is found from what is in it. "
            "Lengths are divided to fit the context, gaps are scaled to the rate above. For a "
            "pool of a real size, undivided: the Replay page.",
        )
        kind, words = st.session_state.get(_SAID, ("", ""))
        if kind == "error":
            st.error(plain(words))
        elif words:
            st.caption(plain(words))


def trace_control(default: str) -> str:
    """Which trace the lengths or gaps are of: a fitted mix, or a file of this visitor's."""
    names = mix_names() + _own_names()
    default = default or DEFAULT_MIX
    return st.selectbox(
        "Trace",
        names,
        names.index(default),
        key=TRACE,
        bind="query-params",
        on_change=forget_file,
        help="A mix fitted to a public trace, or the file that you gave below.",
    )


def look_for_file() -> None:
    """Before the controls are drawn: Streamlit takes a value that is no option out of the
    address."""
    name = st.query_params.get(TRACE, "")
    if name.startswith(FILE):
        try:
            recorded(name)
        except ConfigError as error:
            st.session_state[_MISSING] = f"This link can't be followed yet: {error}"


def missing_file() -> str:
    """Why the address's requests can't be served; empty when they can."""
    return st.session_state.get(_MISSING, "")


def forget_file() -> None:
    """Other requests were chosen."""
    st.session_state.pop(_MISSING, None)


def _own_names() -> list[str]:
    names = dict.fromkeys(st.session_state.get(_NAMES, ()))
    linked = st.query_params.get(TRACE, "")
    if linked.startswith(FILE) and not missing_file():  # given before, in another session
        names[linked] = None
    return list(names)


def _take() -> None:
    """A file was given, or taken away."""
    file = st.session_state.get(_KEY)
    state = st.session_state
    if file is None:
        state[_SAID] = ("", "")
        return
    data = file.getvalue()
    try:
        trace = read_trace(data)
        mix = keep(trace, digest_of(data))
    except KvvizError as error:
        state[_SAID] = ("error", str(error))
        return
    forget_file()
    state[_NAMES] = [*state.get(_NAMES, ()), mix.name]
    for path, value in settings_for(mix).items():
        state[_CONTROLS[path]] = value
    words = f"{mix.about}. {trace.prompt_tokens:,} + {trace.output_tokens:,} tokens. "
    words += trace.set_aside.words
    state[_SAID] = ("read", words[0].upper() + words[1:])
