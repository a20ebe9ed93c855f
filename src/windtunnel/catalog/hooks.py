"""What a program imports: notes on its uncaught exceptions, and ids on the errors that it logs.

    import windtunnel.catalog
    windtunnel.catalog.install()

Nothing is opened, and nothing of the catalog is imported, before there is an error. The store is opened for each
look-up and closed again, so threads and forks share nothing. Whatever goes wrong here is left out: the program's own
error is what counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging
    from os import PathLike

    from windtunnel.catalog.match.look_up import Explained
    from windtunnel.catalog.match.seen import Frame, Seen
    from windtunnel.catalog.record import Record
    from windtunnel.catalog.store import Store

ATTRIBUTE = "error.catalog_id"
_MARK = "windtunnel catalog: "
_MOST_EXCEPTIONS = 20
"""Of a chain or group."""
_MOST_REMEMBERED = 1_024
_ERROR_LEVEL = 40

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def install(store: str | PathLike[str] | None = None) -> None:
    """Let uncaught exceptions, of threads too, tell their record: its id, what it means and the first thing to do.

    `store` is the catalog's file; None: the default one. The hooks that were there before are called as well. Where
    there is no store, or no record, nothing is added. It never raises.
    """
    import threading

    previous, previous_in_threads = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _add_notes(error, store)
        previous(kind, error, trace)

    def hook_of_threads(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None:
            _add_notes(arguments.exc_value, store)
        previous_in_threads(arguments)

    sys.excepthook, threading.excepthook = hook, hook_of_threads


class CatalogFilter:
    """A filter for handlers and loggers: gives errors that are logged the attribute `error.catalog_id`.

    It is the id of the exception that is logged, or else of the statement that logs. Records below `level`, and those
    that no record is found for, don't get it: a format that names it needs `defaults={"error.catalog_id": ""}`.
    """

    def __init__(self, store: str | PathLike[str] | None = None, level: int = _ERROR_LEVEL) -> None:
        self._store = store
        self._level = level
        self._known: dict[tuple[Any, ...], str | None] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the id; let everything through. It never raises."""
        try:
            if record.levelno >= self._level and (found := self._id_of(record)) is not None:
                setattr(record, ATTRIBUTE, found)
        except Exception:
            pass
        return True

    def _id_of(self, record: logging.LogRecord) -> str | None:
        error = record.exc_info[1] if record.exc_info else None
        at = _innermost(error)
        key = (record.pathname, record.lineno, type(error), at and (at.tb_frame.f_code.co_filename, at.tb_lineno))
        if key not in self._known:
            with _opened(self._store) as store:
                seen = [one for each in _chain(error) if (one := _seen(each)) is not None] if error else []
                found = next((item for one in [*seen, _logged(record)] if (item := _found(one, store))), None)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = found.candidates[0].matchable.id if found else None
        return self._known[key]


def _add_notes(error: BaseException, path: str | PathLike[str] | None) -> None:
    try:
        if isinstance(error, KeyboardInterrupt | MemoryError):
            return
        with _opened(path) as store:
            for each in _chain(error):
                seen = _seen(each)
                if seen is not None and (item := _found(seen, store)):
                    each.add_note(_note(store.record(item.candidates[0].matchable.id)))
    except BaseException:  # an interrupt too: the program's error must still be told
        pass


def _opened(path: str | PathLike[str] | None) -> Store:
    from pathlib import Path

    from windtunnel.catalog.store import Store, default_store

    return Store.open(default_store() if path is None else Path(path))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what it was made from, and the members of groups; the root cause first, each once."""
    found: dict[int, BaseException] = {}
    todo: list[BaseException | None] = [error]
    while todo and len(found) < _MOST_EXCEPTIONS:
        each = todo.pop()
        if each is None or id(each) in found:
            continue
        found[id(each)] = each
        todo.append(each.__cause__ or (None if each.__suppress_context__ else each.__context__))
        if isinstance(each, BaseExceptionGroup):
            todo += each.exceptions
    return reversed(found.values())


def _innermost(error: BaseException | None) -> TracebackType | None:
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _seen(error: BaseException) -> Seen | None:
    """As its traceback would show it."""
    from windtunnel.catalog.match.seen import Seen

    trace = _innermost(error)
    if trace is None or any(note.startswith(_MARK) for note in getattr(error, "__notes__", ())):
        return None
    code = trace.tb_frame.f_code
    frame = _frame(code.co_filename, trace.tb_lineno, code.co_name)
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return Seen(name, str(error), (frame,), has_trace=True, language="python")


def _logged(record: logging.LogRecord) -> Seen:
    from windtunnel.catalog.match.seen import Seen

    frame = _frame(record.pathname, record.lineno, record.funcName or "")
    return Seen("", record.getMessage(), (frame,), "logged", has_trace=True, language="python")


def _frame(path: str, line: int, function: str) -> Frame:
    import linecache

    from windtunnel.catalog.match.seen import Frame

    return Frame(path, line, function, linecache.getline(path, line).strip())


def _found(seen: Seen, store: Store) -> Explained | None:
    from windtunnel.catalog.match.look_up import resolve

    item = resolve(seen, store)
    return item if item.answer == "found" else None


def _note(record: Record) -> str:
    """Id, meaning and first solution."""
    lines = [f"{_MARK}{record.id} ({record.project})"]
    lines += [f"  {claim.text}" for claim in record.prose.meaning[:1]]
    lines += [f"  Try: {claim.text}" for claim in record.prose.solutions[:1]]
    return "\n".join(lines)
