"""Messages for the user. The next step is kept as data, so it can be shown as a shell command or a Python call.

The library reports notes to the logger "goalgrid". The command line prints them with steps as shell commands; in
Python, `str` of a note, an error or a step shows the call.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Value = str | bool | tuple[str, ...]

METHODS = {
    "run": "run", "resume": "run", "status": "status", "plan": "plan", "table": "table", "effects": "effects",
    "figures": "figure",
}  # fmt: skip
"""The method of `goalgrid.LoadedGrid` that corresponds to a command."""
OPTIONS = {"only", "force", "stale", "failed", "here", "set"}
"""Options of commands that these methods also have; `set` is an argument of `load`."""
OF_THE_COMMAND_LINE = "{} on the command line"
"""How a step that exists only on the command line is shown in Python."""

LEVELS = {
    "": logging.INFO, "note": logging.INFO, "warning": logging.WARNING, "left out": logging.WARNING,
    "error": logging.ERROR,
}  # fmt: skip
"""The logging level of each kind of note; the empty kind is for progress."""

LOGGER = logging.getLogger("goalgrid")
if not LOGGER.level:  # else the user has chosen one
    LOGGER.setLevel(logging.INFO)

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
"""Control characters except tab and newline, characters that change the text direction, and lone surrogates."""


def plain(text: str) -> str:
    r"""Escape the control characters of a text that a terminal would interpret.

    >>> plain("a name\x1b[31m")
    'a name\\x1b[31m'
    """
    return _OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


def _listed(values: object) -> str:
    return repr(list(values) if isinstance(values, tuple) else [values])


@dataclass(frozen=True)
class Step:
    """A suggested next step: a goalgrid command with its arguments.

    Args:
        arguments: positional arguments; for most commands, the first is the grid.
        options: (name, value) pairs; True for a flag.
        runs: the runs folder; None if the step does not need one.
        load: whether the step concerns another grid, so that the Python call begins with `goalgrid.load`.
    """

    verb: str
    arguments: tuple[str, ...] = ()
    options: tuple[tuple[str, Value], ...] = ()
    runs: Path | None = None
    load: bool = False

    @classmethod
    def of(
        cls, verb: str, *arguments: str, runs: Path | None = None, load: bool = False, **options: Value | None
    ) -> "Step":
        """Build a step from these options, leaving out empty ones.

        >>> print(Step.of("resume", "demo", stale=True), Step.of("run", "demo", only="seed=0", here=True))
        grid.run(stale=True) grid.run('seed=0', here=True)
        """
        return cls(verb, arguments, tuple((name, value) for name, value in options.items() if value), runs, load)

    def words(self) -> list[str]:
        """Return the step as the words of a command line, without the runs folder.

        >>> Step.of("run", "demo", set=("seeds=[0]", "name=x"), stale=True).words()
        ['goalgrid', 'run', 'demo', '--set', 'seeds=[0]', '--set', 'name=x', '--stale']
        """
        words = ["goalgrid", self.verb, *self.arguments]
        for name, value in self.options:
            for one in value if isinstance(value, tuple) else (value,):
                words += [f"--{name.replace('_', '-')}", *([] if one is True else [str(one)])]
        return words

    def __str__(self) -> str:
        """Return the Python call, or the command line if the command has no Python equivalent."""
        options, method = dict[str, object](self.options), METHODS.get(self.verb)
        if method is None or options.keys() - OPTIONS:
            return OF_THE_COMMAND_LINE.format(" ".join(self.words()))
        changes = options.pop("set", ())
        given = [repr(options.pop("only"))] if "only" in options else []
        call = f"{method}({', '.join([*given, *(f'{name}={value!r}' for name, value in options.items())])})"
        if not self.load:
            return f"grid.{call}"
        places = [repr(self.arguments[0]), *([f"runs={str(self.runs)!r}"] if self.runs else [])]
        return f"goalgrid.load({', '.join([*places, *([f'set={_listed(changes)}'] if changes else [])])}).{call}"


Wording = Callable[[Step], str]
"""A function that formats a step, as a Python call (`str`) or as a shell command."""


@dataclass(frozen=True)
class Note:
    """A message.

    Args:
        text: the message, with `{step}` as the placeholder of the next step.
        kind: one of `LEVELS`.
    """

    text: str
    step: Step | None = None
    kind: str = ""

    def worded(self, wording: Wording) -> str:
        """Return the text with the next step filled in.

        >>> note = Note("trained with older code. Retrain with: {step}", Step.of("resume", "demo", stale=True))
        >>> note.worded(str)
        'trained with older code. Retrain with: grid.run(stale=True)'
        """
        return self.text.replace("{step}", wording(self.step)) if self.step else self.text

    def __str__(self) -> str:
        return self.worded(str)


def tell(text: str, step: Step | None = None, *, kind: str = "") -> None:
    """Report a note to the logger "goalgrid"; the record's `msg` is the `Note`."""
    LOGGER.log(LEVELS[kind], Note(text, step, kind))


def warn(text: str, step: Step | None = None) -> None:
    """Report a warning."""
    tell(text, step, kind="warning")


def leave_out(text: str) -> None:
    """Report that something is skipped, and why."""
    tell(text, kind="left out")


def prefixed(kind: str, text: str) -> str:
    """Prefix a text with its kind: `warning: the table is not kept`."""
    return f"{kind}: {text}" if kind else text


class Unrouted(logging.Handler):
    """Write notes with Python's handler of last resort, unless the user has configured logging."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the note to stderr, unless another handler is configured."""
        others = [handler for handler in (*LOGGER.handlers, *logging.root.handlers) if handler is not self]
        if others or logging.lastResort is None:
            return
        kind = record.msg.kind if isinstance(record.msg, Note) else ""
        text = plain(prefixed(kind, record.getMessage()))
        logging.lastResort.handle(logging.makeLogRecord({**vars(record), "msg": text, "args": None}))


LOGGER.addHandler(Unrouted())
