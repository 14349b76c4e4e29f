"""Words that are shown as they are: those of files, of addresses, and of messages that quote them.

Streamlit reads Markdown nearly everywhere. HTML stays text there by itself; links, pictures (which
a browser would fetch from anywhere), formulas, colours and icons would be made of what a file says.
"""

from __future__ import annotations

import re

_SIGNS = re.compile(r"[\\`*\[\]<>#|$~]|:(?=\w)|(?<![^\W_])_|_(?![^\W_])|&(?=[#\w])")
_LISTS = re.compile(r"(?m)^(\s*\d*)([-+.)=])")
_ADDRESSES = re.compile(r"(?i)(https?:/|www|mailto)([/.:])")
_JOINER = "\u2060"  # no width; an address with it in is no link


def plain(text: str) -> str:
    """Markdown that shows this text, and nothing else."""
    text = _ADDRESSES.sub(rf"\1{_JOINER}\2", text)
    return _LISTS.sub(r"\1\\\2", _SIGNS.sub(r"\\\g<0>", text))
