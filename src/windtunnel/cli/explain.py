"""`windtunnel explain`: what an error means, from a line, a traceback, a log, a body, a code or an id."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, PROJECT, STORE, open_store, width
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.json_output import print_json
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import PATH, POSITIVE
from windtunnel.errors import EXIT_FAILED, EXIT_OK, ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from windtunnel.catalog.match.answer import Explanation
    from windtunnel.catalog.store import Store

_SUMMARY = """\
Say what an error means: what raises it, what sets it off, and what to do. Root causes come first.

  windtunnel explain 'NIXL transfer failed with state=ERR'
  windtunnel explain server.log
  kubectl logs pod | windtunnel explain

Takes a line, a log of any length, a traceback (Python, Rust, Go, Java, JavaScript), the body of an HTTP answer, one of
windtunnel's codes (WT-…), or a record's id. Exits with 0 where a record is found or possible, 1 where none is, and 2
where there is no catalog."""

_FLAGS = (
    Flag("--file", GROUP, PATH, None, "Explain what this file holds.", OURS),
    Flag("--limit", GROUP, POSITIVE, 5, "Show at most N records for each error.", OURS),
    PROJECT,
    STORE,
    JSON,
)  # fmt: skip
_BLOCK_BYTES = 1 << 20
_LONG_BYTES, _LONG_LINES = 200_000, 200
"""What is longer is a log, and is scanned."""
_LOOKS_LIKE_A_FILE = (".log", ".txt", ".out", ".err", ".json", ".jsonl")


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("TEXT", "?", "What to explain; a file's name: what it holds. Without it, or -: stdin.")
    return CommandParser("explain", _SUMMARY, _FLAGS, GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Print the explanation; 0 where there is a record, else 1."""
    values = parser().parse(arguments).values
    text, path = _input_of(values)
    with open_store(values) as store:
        if values.project is not None:
            store.project(values.project)  # refuses a name that it does not have
        if text is not None:
            explanation = _of_text(text, store, values)
        elif path is None:
            explanation = _of_stream(sys.stdin.buffer, store, values)
        else:
            with _opened(path) as stream:
                explanation = _of_stream(stream, store, values)
    if values.json:
        print_json(explanation)
    else:
        from windtunnel.catalog.match.told import explanation_text

        sys.stdout.write(explanation_text(explanation, width()))
    return EXIT_OK if explanation.found else EXIT_FAILED


def _input_of(values: argparse.Namespace) -> tuple[str | None, Path | None]:
    """The text itself, or the file that it is in; neither: it comes on stdin."""
    text: str | None = values.text
    if values.file is not None:
        if text is not None:
            raise ConfigurationError("--file", "is given beside a text", "Give one of the two.")
        return None, None if values.file == "-" else Path(values.file)
    if text is None or text == "-":
        if sys.stdin.isatty():
            tell_note("reading what you paste; Ctrl-D ends it")
        return None, None
    if len(text) < 4_096 and "\n" not in text and os.path.exists(text):  # a pipe too: `explain <(kubectl logs pod)`
        if not os.path.isdir(text):
            return None, Path(text)
        tell_note(f"{text} is a folder; it is taken as the text of an error")
    if " " not in text and text.endswith(_LOOKS_LIKE_A_FILE):
        tell_note(f"there is no file {text}; it is taken as the text of an error")
    return text, None


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            "--file", f"{path} can't be read: {reason}", "Name a file that can be read."
        ) from error


def _of_stream(stream: BinaryIO, store: Store, values: argparse.Namespace) -> Explanation:
    """Short input as a whole, a log in blocks."""
    first = stream.read(_LONG_BYTES)  # all there is, or that much
    if len(first) < _LONG_BYTES and first.count(b"\n") < _LONG_LINES:
        return _of_text(first.decode("utf-8", "replace"), store, values)
    return _of_log(chain([first], iter(lambda: stream.read(_BLOCK_BYTES), b"")), store, values)


def _of_text(text: str, store: Store, values: argparse.Namespace) -> Explanation:
    if len(text) >= _LONG_BYTES or text.count("\n") >= _LONG_LINES:
        return _of_log([text.encode("utf-8", "replace")], store, values)
    from windtunnel.catalog.match.look_up import explain

    return explain(text, store, project=values.project, limit=values.limit)


def _of_log(blocks: Iterable[bytes], store: Store, values: argparse.Namespace) -> Explanation:
    try:
        import ahocorasick_rs  # noqa: F401
    except ImportError as error:
        raise MissingExtra("reading logs", "ahocorasick_rs", "catalog") from error
    from windtunnel.catalog.match.scan import explain_log

    return explain_log(blocks, store, project=values.project, limit=values.limit)
