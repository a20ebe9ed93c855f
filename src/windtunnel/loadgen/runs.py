"""The runs folder: each run has a folder with its journal, whether or not anyone thought of saving its result."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from msgspec import Struct

from windtunnel import errors
from windtunnel.clock import local_time
from windtunnel.loadgen.journal import FILE_NAME, Header, decode_end, is_locked, read_header


def default_folder() -> Path:
    """`$XDG_STATE_HOME/windtunnel/runs`, by the XDG rule for state."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "windtunnel" / "runs"


class RunInfo(Struct):
    """A run in the folder."""

    run_id: str
    path: Path
    size_bytes: int
    header: Header | None
    """None: its journal can't be read."""
    state: str
    """`running`, `finished`, `interrupted`, `worker lost`, `unfinished` (cut off) or `unreadable`."""
    problem: str | None = None

    @property
    def journal(self) -> Path:
        """Its journal."""
        return self.path / FILE_NAME


def new_run_id() -> str:
    """By local time, so that names sort by age, and unique."""
    return f"{time.strftime('%Y%m%d-%H%M%S', local_time())}-{secrets.token_hex(2)}"


def make_run_folder(folder: Path, run_id: str) -> Path:
    """Make a run's folder and prove that it can be written to; raises OSError."""
    path = folder / run_id
    path.mkdir(parents=True)
    probe = path / ".proof"
    with open(probe, "wb") as file:
        file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())
    probe.unlink()
    return path


def list_runs(folder: Path) -> list[RunInfo]:
    """The runs of a folder, oldest first; an absent folder has none."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if (Path(entry.path) / FILE_NAME).is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.FileError(
            "read", str(folder), str(error.strerror), "Choose another one with --runs-dir."
        ) from error
    return [_describe(folder / name) for name in names]


def find_run(folder: Path, name: str | None, *, unfinished: bool = False) -> RunInfo:
    """A run by its name, an unambiguous beginning of it, or a path to its folder or journal.

    Without a name the newest, or with `unfinished` the newest that did not finish. Raises errors.RunNotFound.
    """
    if name == "":
        raise errors.RunNotFound("''", str(folder), ": the name is empty")
    if name is not None and os.sep in name:
        path = Path(name)
        path = path.parent if path.name == FILE_NAME else path
        if (path / FILE_NAME).is_file():
            return _describe(path)
        raise errors.RunNotFound(name, str(path.parent))
    runs = list_runs(folder)
    if name is None:
        wanted = [run for run in runs if not unfinished or run.state == "unfinished"]
        if not wanted:
            raise errors.RunNotFound("that is unfinished" if unfinished and runs else "at all", str(folder))
        return wanted[-1]
    matches = [run for run in runs if run.run_id == name] or [run for run in runs if run.run_id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(run.run_id for run in matches[:3]) + ("…" if len(matches) > 3 else "")
        raise errors.RunNotFound(name, str(folder), f" alone: {len(matches)} begin so ({names})")
    suggestion = errors.did_you_mean(name, [run.run_id for run in runs], most=3)
    raise errors.RunNotFound(name, str(folder), suggestion)


def remove_run(run: RunInfo) -> None:
    """Remove a run's folder; raises errors.FileError."""
    try:
        run.journal.unlink()
        run.path.rmdir()  # refused where there is anything else
    except OSError as error:
        raise errors.FileError(
            "remove",
            str(run.path),
            str(error.strerror or error),
            "Only a folder that holds nothing but a journal is removed.",
        ) from error


def refuse_running(run: RunInfo) -> None:
    """Raise errors.RunGoesOn for a run that is going on."""
    if run.state == "running":
        raise errors.RunGoesOn(run.run_id)


def _describe(path: Path) -> RunInfo:
    journal = path / FILE_NAME
    size = journal.stat().st_size
    try:
        header = read_header(journal)
    except errors.WindtunnelError as error:
        return RunInfo(path.name, path, size, None, "running" if is_locked(journal) else "unreadable", error.message)
    return RunInfo(path.name, path, size, header, "running" if is_locked(journal) else _state(journal, size))


_STATES = {"done": "finished", "SIGINT": "interrupted", "SIGTERM": "interrupted", "worker lost": "worker lost"}


def _state(journal: Path, size: int) -> str:
    """By the journal's last line, looked for from its end, since journals are large."""
    with open(journal, "rb") as file:
        file.seek(max(0, size - 4096))
        last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    end = decode_end(last)
    return "unfinished" if end is None else _STATES.get(end.reason, "finished")
