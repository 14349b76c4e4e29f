"""What a person can fix. Every message says what to do next.

KvvizError
 ├─ ConfigError      a setting that can't be: unknown name, out of range, contradiction
 ├─ CheckpointError  a model folder that can't be read or isn't supported
 ├─ CapacityError    a pool that does not fit the device or the process's budget
 ├─ TraceError       a file of requests that can't be read
 ├─ ScenarioError    a scenario file that can't be read or replayed: line, field, what was expected
 └─ RecordingError   a saved run that can't be read or written

Broken invariants are asserts that print the equation; a request that can't be placed is a
Verdict, a value and no error.
"""

LONGEST = 4000  # characters of a message


class KvvizError(Exception):
    """Base of everything a person can fix.

    Its text is one line of printable signs, whatever the file or the setting was that it quotes.
    """

    def __init__(self, what: str) -> None:
        super().__init__(one_line(what))


def one_line(text: str, longest: int = LONGEST) -> str:
    """White space as blanks, other signs that can't be seen as escapes, the middle of what is too
    long left out."""
    if len(text) > longest:
        half = longest // 2 - 3
        text = f"{text[:half]} ... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(map(_printable, text))


def _printable(sign: str) -> str:
    if sign.isprintable():
        return sign
    return " " if sign.isspace() else ascii(sign)[1:-1]


class ConfigError(KvvizError):
    """A setting is unknown, out of range, or contradicts another."""


class CheckpointError(KvvizError):
    """A model folder is missing, damaged or of an unsupported kind."""


class CapacityError(KvvizError):
    """A pool does not fit in the device's memory or in the process's budget."""


class TraceError(KvvizError):
    """A file of requests is damaged, too large, or of no known format."""


class ScenarioError(KvvizError):
    """A scenario file can't be read or replayed.

    line: of the JSON text, 0 when there is none to name; field: a path like requests[2].prompt.
    """

    def __init__(self, what: str, *, line: int = 0, field: str = "") -> None:
        where = [f"line {line}"] if line else []
        where += [field] if field else []
        super().__init__(f"{', '.join(where)}: {what}" if where else what)
        self.line, self.field = line, field


class RecordingError(KvvizError):
    """A saved run is damaged, too large, from a newer kvviz, or can't be written."""


class BenchError(KvvizError):
    """A bench's JSON can't be read."""
