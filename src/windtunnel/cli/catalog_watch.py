"""`windtunnel catalog watch`: follow a log, and tell each error that the catalog knows once."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.cli.catalog_flags import GROUP, GROUPS, JSON, PROJECT, STORE, open_store
from windtunnel.cli.console import say, tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.parser import CommandParser, Positional
from windtunnel.cli.values import SWITCH
from windtunnel.errors import EXIT_OK, ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from windtunnel.catalog.match.scan import Scanner, Sighting
    from windtunnel.catalog.store import Store

_SUMMARY = """\
Follow a log, and tell each error once: where it is, which record it is, what it means. Counts come at the end.

  windtunnel catalog watch server.log
  journalctl -fu vllm | windtunnel catalog watch -

The file is followed by its name, as `tail -F` does: it may be rotated, truncated, or not be there yet. Ctrl-C ends it;
so does the end of stdin."""

_FLAGS = (
    Flag("--new-only", GROUP, SWITCH, False, "Leave out what the file has already.", OURS),
    Flag("--once", GROUP, SWITCH, False, "End at the end of the file instead of waiting for more.", OURS),
    PROJECT,
    STORE,
    JSON,
)  # fmt: skip
_BLOCK_BYTES = 1 << 20
_POLL_S = 0.2
"""Between two looks at a file that did not grow."""
_QUIET_POLLS = 3
"""After so many, what waits for more is told."""


def parser() -> CommandParser:
    """Of this command's flags."""
    positional = Positional("FILE", "?", "The log; - or nothing: stdin.")
    return CommandParser("catalog watch", _SUMMARY, _FLAGS, GROUPS, positional)


def run(arguments: Sequence[str]) -> int:
    """Tell errors as they come, until it is interrupted or stdin ends."""
    values = parser().parse(arguments).values
    try:
        import ahocorasick_rs  # noqa: F401
    except ImportError as error:
        raise MissingExtra("reading logs", "ahocorasick_rs", "catalog") from error
    from windtunnel.catalog.match.scan import Scanner

    with open_store(values) as store:
        if values.project is not None:
            store.project(values.project)  # refuses a name that it does not have
        scanner = Scanner(store, values.project)
        try:
            if values.file in (None, "-"):
                chunks = _stdin()
            else:
                chunks = _followed(Path(values.file), new_only=values.new_only, once=values.once)
            for data in chunks:
                new = scanner.feed(data) if data else scanner.settle(is_last=False)
                _tell(new, store, as_json=values.json)
        except KeyboardInterrupt:
            pass
        _tell(scanner.settle(), store, as_json=values.json)
        _tell_counts(scanner, as_json=values.json)
    return EXIT_OK


def _stdin() -> Iterator[bytes]:
    """What comes; empty where nothing came for a while."""
    descriptor = sys.stdin.fileno()
    quiet = 0
    while True:
        if not select.select([descriptor], [], [], _POLL_S)[0]:
            quiet += 1
            if quiet == _QUIET_POLLS:
                yield b""
            continue
        data = os.read(descriptor, _BLOCK_BYTES)
        if not data:
            return
        quiet = 0
        yield data


def _followed(path: Path, *, new_only: bool, once: bool) -> Iterator[bytes]:
    """A file's content as it grows; empty where it did not for a while.

    Another file of its name is read from its start, and so is one that got shorter than what was read.
    """
    if path.is_dir():
        raise ConfigurationError("FILE", f"{path} is a folder", "Name a log file.")
    if once and not path.exists():
        raise ConfigurationError(
            "FILE", f"there is no file {path}", "Name a log file; without --once it is waited for."
        )
    is_first = True
    if not path.exists():
        tell_note(f"there is no file {path} yet; it is waited for")
    while True:
        try:
            with path.open("rb") as stream:
                if is_first and new_only:
                    stream.seek(0, os.SEEK_END)
                is_first = False
                yield from _content(path, stream.fileno(), once=once)
        except FileNotFoundError:
            pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(
                "FILE", f"{path} can't be read: {reason}", "Name a file that can be read."
            ) from error
        if once:
            return
        _wait()


def _content(path: Path, descriptor: int, *, once: bool) -> Iterator[bytes]:
    """What the open file has and gets, until another one has its name."""
    quiet = 0
    is_cut = False
    while True:
        if data := os.read(descriptor, _BLOCK_BYTES):
            quiet, is_cut = 0, not data.endswith(b"\n")
            yield data
            continue
        if once:
            return
        is_truncated = os.fstat(descriptor).st_size < os.lseek(descriptor, 0, os.SEEK_CUR)
        if is_truncated or not _is_same(path, descriptor):
            while not is_truncated and (data := os.read(descriptor, _BLOCK_BYTES)):
                is_cut = not data.endswith(b"\n")  # written between the last look and the rotation
                yield data
            if is_cut:
                yield b"\n"
            if not is_truncated:
                return
            os.lseek(descriptor, 0, os.SEEK_SET)
            is_cut = False
            continue
        quiet += 1
        if quiet == _QUIET_POLLS:
            yield b""
        _wait()


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return True  # it may be about to come again; what is open may still grow


def _wait() -> None:
    select.select([], [], [], _POLL_S)


def _tell(sightings: Sequence[Sighting], store: Store, *, as_json: bool) -> None:
    for sighting in sightings:
        if not any(item.candidates or item.seen.has_trace for item in sighting.chain):
            continue
        if as_json:
            _print_line(_document(sighting))
        else:
            for line in _lines(sighting, store):
                print(line)
            sys.stdout.flush()


def _lines(sighting: Sighting, store: Store) -> Iterator[str]:
    for depth, item in enumerate(sighting.chain):
        seen = item.seen
        said = ": ".join(part for part in (seen.type, " ".join(seen.message.split())) if part)
        where = f"line {sighting.first_line:,}" if depth == 0 else f"  then ({seen.how})"
        yield f"{where}: {_printable(said)[:300]}"
        if not item.candidates:
            yield "    not in this catalog"
            continue
        best = item.candidates[0]
        yield f"    {best.matchable.id}  {best.matchable.project}  {item.answer}, {best.confidence:.0%}"
        for claim in store.record(best.matchable.id).prose.meaning[:1]:
            yield f"    {_printable(claim.text)}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _document(sighting: Sighting) -> dict[str, Any]:
    return {
        "event": "error",
        "first_line": sighting.first_line,
        "last_line": sighting.last_line,
        "errors": [
            {
                "type": item.seen.type,
                "message": item.seen.message[:500],
                "how": item.seen.how,
                "answer": item.answer,
                "records": [{"id": c.matchable.id, "confidence": round(c.confidence, 3)} for c in item.candidates[:5]],
            }
            for item in sighting.chain
        ],
    }


def _tell_counts(scanner: Scanner, *, as_json: bool) -> None:
    known = [s for s in scanner.sightings.values() if any(i.candidates or i.seen.has_trace for i in s.chain)]
    known.sort(key=lambda sighting: -sighting.num_times)
    if as_json:
        counts = [
            {"id": s.chain[0].candidates[0].matchable.id if s.chain[0].candidates else None,
             "type": s.chain[0].seen.type, "count": s.num_times, "first_line": s.first_line, "last_line": s.last_line}
            for s in known
        ]  # fmt: skip
        _print_line({"event": "end", "lines": scanner.num_lines, "errors": counts})
        return
    say(f"{scanner.num_lines:,} lines, {len(known):,} different errors")
    for sighting in known[:50]:
        root = sighting.chain[0]
        key = root.candidates[0].matchable.id if root.candidates else "not in this catalog"
        said = ": ".join(part for part in (root.seen.type, " ".join(root.seen.message.split())) if part)
        say(f"{sighting.num_times:9,}  {key}  {_printable(said)[:120]}")


def _print_line(document: dict[str, Any]) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()
