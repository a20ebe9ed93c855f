"""What the command line itself says on stderr: notes and errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from windtunnel.cli.secrets import known_secrets, scrub
from windtunnel.errors import WindtunnelError


def say(text: str, *, end: str = "\n") -> None:
    """Write to stderr; where nobody reads it any more, go on without."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def tell_note(note: str) -> None:
    """Say something that is no error."""
    say(f"windtunnel: {_painted('note:', '33')} {note}")


def tell_error(error: WindtunnelError, arguments: Sequence[str]) -> None:
    """What happened, the way out, and the code. `arguments` are the command line, whose secrets are left out."""
    if _debugging():
        _tell_traceback(error, arguments)
    _tell(f"{_error_word()} {error.message}\n  Fix: {error.advice}\n  [{error.code}]", arguments)


def tell_fault(error: Exception, arguments: Sequence[str]) -> None:
    """An exception that should not have been."""
    if _debugging():
        _tell_traceback(error, arguments)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    _tell(
        f"{_error_word()} sorry, this is a fault in windtunnel: {what}\n"
        f"  It happened at {_place(error)}.\n"
        "  WINDTUNNEL_DEBUG=1 shows the whole traceback; please report it together with the command.",
        arguments,
    )


def _error_word() -> str:
    return f"windtunnel: {_painted('error:', '1;31')}"


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    if trace is None:
        return "an unknown place"
    while trace.tb_next:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno}, in {code.co_qualname}"


def _tell_traceback(error: BaseException, arguments: Sequence[str]) -> None:
    import traceback

    _tell("".join(traceback.format_exception(error)), arguments)


def _tell(text: str, arguments: Sequence[str]) -> None:
    say(scrub(text, known_secrets(arguments, os.environ)))


def _debugging() -> bool:
    return bool(os.environ.get("WINDTUNNEL_DEBUG"))


def _painted(text: str, color: str) -> str:
    """In colour where stderr is a terminal and the user has nothing against it (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stderr.isatty():
        return text
    return f"\x1b[{color}m{text}\x1b[0m"
