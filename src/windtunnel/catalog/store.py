"""The catalog's file: one SQLite database with the records of many projects and versions.

A *snapshot* is what a version of a project raises; the one that was indexed last is the project's current one, and
look-ups use current ones unless told. Facts of files are kept beside, so that only what has changed is read again. One
process writes at a time, in one transaction for each snapshot; others read what was there before.
"""

from __future__ import annotations

import os
import re
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.catalog.match.places import file_name, last_name
from windtunnel.catalog.record import Kind, Language, MessageSource, NotAnalysed, Prose, Provenance, Record, Severity
from windtunnel.catalog.store_schema import APPLICATION_ID, VERSION, migrate
from windtunnel.catalog.template import Part
from windtunnel.errors import NotInCatalog, StoreMissing, StoreUnusable, did_you_mean

_BUSY_S = 5.0
_LEAST_PREFIX = 6
_MOST_CANDIDATES = 2000
_FUSION = 60
"""Of reciprocal rank fusion (Cormack et al., 2009)."""


class Project(msgspec.Struct, frozen=True):
    """A snapshot of a project."""

    name: str
    version: str
    commit: str | None
    source: str
    """What `open_source` reads it from."""
    indexed_at: str
    tool: str
    num_records: int
    num_files: int
    num_lines: int
    languages: dict[str, int]
    """Records of each language."""
    problems: tuple[tuple[str, str], ...]
    """Files that could not be read wholly, and why."""
    current: bool = True


class Matchable(msgspec.Struct, frozen=True):
    """What is needed of a record to tell whether a message comes from it."""

    id: str
    project: str
    language: Language
    kind: Kind
    type: str
    template: tuple[Part, ...]
    message_source: MessageSource
    renders: tuple[Part, ...] | None
    places: tuple[tuple[str, int, int, str], ...]
    """Path, first and last line, function."""


class Hit(msgspec.Struct, frozen=True):
    """A record that a search found."""

    id: str
    project: str
    version: str
    kind: str
    type: str
    text: str
    path: str
    line: int
    severity: Severity | NotAnalysed
    score: float
    """Higher is better; of one search only."""
    language: Language


class Explained(msgspec.Struct, frozen=True):
    """What a model or person said of a record, after the gate."""

    prose: Prose
    provenance: Provenance


_facts = msgspec.msgpack.Decoder(Project)
_matchable = msgspec.msgpack.Decoder(Matchable)
_record = msgspec.msgpack.Decoder(Record)
_explained = msgspec.msgpack.Decoder(Explained)
_encode = msgspec.msgpack.Encoder().encode


def default_store() -> Path:
    """`$XDG_DATA_HOME/windtunnel/catalog.sqlite`, by the XDG rule for data."""
    data = os.environ.get("XDG_DATA_HOME")
    base = Path(data) if data and os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "windtunnel" / "catalog.sqlite"


class Store:
    """An open catalog. Use it as a context manager. Any thread may read."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    @classmethod
    def open(cls, path: Path, *, write: bool = False) -> Store:
        """Open a catalog; to write, it is made where there is none. Raises StoreMissing, StoreUnusable.

        A file of an older version is brought up to this one when it is opened to write.
        """
        if not write and not path.exists():
            raise StoreMissing(str(path))
        if path.is_dir():
            raise _unusable(path, "it is a folder", "Name the file of a catalog by --store.")
        with _translated(path):
            if write:
                _make_folder(path)
            mode = "rwc" if write else "ro"
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_S, isolation_level=None,
                check_same_thread=False,
            )  # fmt: skip
            try:
                _prepare(path, connection, write)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- projects -------------------------------------------------------------------------------------------------

    def projects(self, *, every_version: bool = False) -> list[Project]:
        """The current snapshots, or all, by name; a project's current one first."""
        rows = self._all("SELECT facts, is_current FROM snapshots ORDER BY project, is_current DESC, version")
        found = [msgspec.structs.replace(_facts.decode(facts), current=bool(current)) for facts, current in rows]
        return [project for project in found if project.current or every_version]

    def project(self, name: str, version: str | None = None) -> Project:
        """A snapshot: the current one, or that of a version. Raises NotInCatalog."""
        return self._project(self._snapshot(name, version))

    def _project(self, snapshot: int) -> Project:
        facts, current = self._all("SELECT facts, is_current FROM snapshots WHERE snapshot = ?", snapshot)[0]
        return msgspec.structs.replace(_facts.decode(facts), current=bool(current))

    def _snapshot(self, name: str, version: str | None) -> int:
        rows = self._all("SELECT snapshot, version, is_current FROM snapshots WHERE project = ?", name)
        if not rows:
            known = [project for (project,) in self._all("SELECT DISTINCT project FROM snapshots")]
            raise NotInCatalog(str(self.path), "project", name, did_you_mean(name, known))
        for snapshot, known_version, is_current in rows:
            if is_current if version is None else known_version == version:
                return int(snapshot)
        suggestion = did_you_mean(version or "", [row[1] for row in rows])
        raise NotInCatalog(str(self.path), "version", f"{name}@{version}", suggestion)

    # --- records --------------------------------------------------------------------------------------------------

    def record(self, key: str, *, version: str | None = None) -> Record:
        """A record by its id, an earlier id, or the beginning of one (6 digits or more). Raises NotInCatalog.

        Where it was found by an earlier id, the record's own differs.
        """
        rows = self._record_rows(key, version)
        if not rows:
            rows = self._successor_rows(key, version)
        if not rows:
            where = key if version is None else f"{key} in version {version}"
            too_short = (
                f"; give the first {_LEAST_PREFIX} of its 16 digits at least" if len(key) < _LEAST_PREFIX else ""
            )
            raise NotInCatalog(str(self.path), "record", where, too_short)
        if len({row[0] for row in rows}) > 1:
            several = ", ".join(sorted({row[0] for row in rows})[:4])
            raise NotInCatalog(str(self.path), "single record", key, f"; several begin with that: {several}")
        return self._decoded(rows[0][1], rows[0][2], self._earlier_ids())

    def _successor_rows(self, key: str, version: str | None) -> list[tuple[Any, ...]]:
        """What became of a record, over however many versions."""
        pending = [new for (new,) in self._all("SELECT new FROM aliases WHERE old >= ? AND old < ?", *_range(key))]
        seen: set[str] = set()
        while pending:
            successor = pending.pop()
            if rows := self._record_rows(successor, version):
                return rows
            if successor not in seen:
                seen.add(successor)
                pending += [new for (new,) in self._all("SELECT new FROM aliases WHERE old = ?", successor)]
        return []

    def _record_rows(self, key: str, version: str | None) -> list[tuple[Any, ...]]:
        where, arguments = "records.id >= ? AND records.id < ?", [*_range(key)]
        where += " AND snapshots.is_current" if version is None else " AND snapshots.version = ?"
        arguments += [] if version is None else [version]
        return self._all(
            f"SELECT records.id, project, body FROM records JOIN snapshots USING (snapshot) WHERE {where} LIMIT 20",
            *arguments,
        )

    def _earlier_ids(self) -> dict[str, list[str]]:
        """Of each record that has had others: all of them, the latest first."""
        before: dict[str, list[str]] = {}
        for old, new in self._all("SELECT old, new FROM aliases ORDER BY old"):
            before.setdefault(new, []).append(old)
        for new, found in before.items():
            for each in found:  # grows as it goes
                found += [old for old in before.get(each, ()) if old not in found and old != new]
        return before

    def _decoded(self, project: str, body: bytes, earlier: Mapping[str, Sequence[str]]) -> Record:
        record = _record.decode(zlib.decompress(body))
        if aliases := earlier.get(record.id):
            record = msgspec.structs.replace(record, aliases=tuple(aliases))
        rows = self._all("SELECT body FROM explanations WHERE project = ? AND id = ?", project, record.id)
        if rows:
            explained = _explained.decode(rows[0][0])
            record = msgspec.structs.replace(record, prose=explained.prose, provenance=explained.provenance)
        return record

    def records(self, project: str, version: str | None = None) -> Iterator[Record]:
        """Every record of a snapshot, by path and line. Raises NotInCatalog."""
        snapshot = self._snapshot(project, version)
        earlier = self._earlier_ids()
        for (body,) in self._all("SELECT body FROM records WHERE snapshot = ? ORDER BY path, line, id", snapshot):
            yield self._decoded(project, body, earlier)

    def hits(self, project: str, version: str | None = None) -> list[Hit]:
        """What a list of a snapshot's records needs of each, by path and line. Raises NotInCatalog."""
        rows = self._all(f"{_HIT} WHERE snapshot = ? ORDER BY path, line, id", self._snapshot(project, version))
        return [_hit(row, 0.0) for row in rows]

    def versions_of(self, record_id: str) -> list[str]:
        """The versions of its project that have a record, the one that was indexed last first."""
        rows = self._all(
            "SELECT version FROM records JOIN snapshots USING (snapshot) WHERE id = ? ORDER BY is_current DESC, "
            "snapshot DESC",
            record_id,
        )
        return [version for (version,) in rows]

    # --- finding --------------------------------------------------------------------------------------------------

    def by_place(self, name: str, function: str) -> list[Matchable]:
        """Records that a file of that name raises in a function of that name (its own, unqualified)."""
        rows = self._all(
            "SELECT matchable FROM records JOIN snapshots USING (snapshot) WHERE is_current AND record IN "
            "(SELECT record FROM places WHERE name = ? AND function = ?)",
            name, last_name(function),
        )  # fmt: skip
        return [_matchable.decode(row[0]) for row in rows]

    def by_words(self, words: Collection[str]) -> list[Matchable]:
        """Records one of whose anchors, the rarest words of their literals, is among `words`."""
        found = msgspec.json.encode(sorted(set(words))).decode()
        rows = self._all(
            "SELECT matchable FROM records JOIN snapshots USING (snapshot) WHERE is_current AND record IN "
            "(SELECT record FROM anchors WHERE word IN (SELECT value FROM json_each(?))) LIMIT ?",
            found, _MOST_CANDIDATES,
        )  # fmt: skip
        return [_matchable.decode(row[0]) for row in rows]

    def matchables(self, project: str | None = None) -> Iterator[Matchable]:
        """Every record of the current snapshots, as far as matching needs it."""
        rows = self._all(
            "SELECT matchable FROM records JOIN snapshots USING (snapshot) WHERE is_current "
            "AND (?1 IS NULL OR project = ?1)",
            project,
        )
        for (body,) in rows:
            yield _matchable.decode(body)

    def search(self, words: str, *, project: str | None = None, limit: int = 20, offset: int = 0) -> list[Hit]:
        """Records that words, an id, a code, a path or a type point at, the best first.

        Ranks of a search for words (porter) and one for parts of words (trigram) are put together by their reciprocals.
        """
        scores: dict[int, float] = {}
        for query, table in ((_word_query(words), "words"), (_gram_query(words), "grams")):
            if query:
                order = "bm25(words, 4.0, 3.0, 1.0)" if table == "words" else "rank"
                ranked = f"SELECT rowid FROM {table} WHERE {table} MATCH ?1 ORDER BY {order} LIMIT ?3"
                most = limit + offset + 50 if project is None else _MOST_CANDIDATES
                current = f"{_IN_CURRENT} AND (?2 IS NULL OR project = ?2)"
                found = {row[0] for row in self._all(f"{current} AND record IN ({ranked})", query, project, most)}
                rows = [row for row in self._all(ranked, query, None, most) if row[0] in found]
                for rank, (record,) in enumerate(rows):
                    scores[record] = scores.get(record, 0.0) + 1 / (_FUSION + rank)
        for column in ("id", "type", "text"):
            rows = self._all(
                f"{_IN_CURRENT} AND (?2 IS NULL OR project = ?2) AND records.{column} = ?1 LIMIT 50",
                words.strip(),
                project,
            )
            for (record,) in rows:
                scores[record] = scores.get(record, 0.0) + 1.0
        best = sorted(scores, key=lambda record: (-scores[record], record))[offset : offset + limit]
        return [_hit(self._all(f"{_HIT} WHERE record = ?", record)[0], scores[record]) for record in best]

    # --- writing --------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it, or nothing. Raises StoreUnusable where another process writes."""
        with _translated(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def remove(self, project: str, version: str | None = None) -> int:
        """Remove a project, or one version of it; how many records went. Raises NotInCatalog."""
        wanted = None if version is None else self._snapshot(project, version)
        self._snapshot(project, version)
        with self.writing() as connection:
            rows = self._all("SELECT snapshot FROM snapshots WHERE project = ? ORDER BY snapshot", project)
            gone = [snapshot for (snapshot,) in rows if wanted in (None, snapshot)]
            num_records = sum(remove_snapshot(connection, snapshot) for snapshot in gone)
            left = [snapshot for (snapshot,) in rows if snapshot not in gone]
            if left:
                make_current(connection, project, left[-1])
            else:
                connection.execute("DELETE FROM explanations WHERE project = ?", [project])
            forget_unused_facts(connection)
        return num_records

    def put_explanation(self, record_id: str, prose: Prose, provenance: Provenance, *, project: str) -> None:
        """Keep what was said of a record beside what the code says; `record` shows it from now on."""
        body = _encode(Explained(prose, provenance))
        with self.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO explanations VALUES (?, ?, ?)", [project, record_id, body])

    def explained_ids(self, project: str) -> list[str]:
        """Records that somebody explained."""
        return [known for (known,) in self._all("SELECT id FROM explanations WHERE project = ? ORDER BY id", project)]

    def _all(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with _translated(self.path):
            return self.connection.execute(query, arguments).fetchall()


def _range(key: str) -> tuple[str, str]:
    """Ids that begin with a key, where it is long enough; else only the key itself."""
    return (key, f"{key}g") if len(key) >= _LEAST_PREFIX else (key, f"{key}\0")


_IN_CURRENT = "SELECT record FROM records JOIN snapshots USING (snapshot) WHERE is_current"
_HIT = (
    "SELECT record, records.id, project, version, kind, type, text, path, line, severity, language FROM records "
    "JOIN snapshots USING (snapshot)"
)


def _hit(row: tuple[Any, ...], score: float) -> Hit:
    record_id, project, version, kind, type_, text, path, line, severity, language = row[1:]
    return Hit(record_id, project, version, kind, type_, text, path, line, severity, score, language)


def _word_query(words: str) -> str:
    """FTS5's syntax is not the user's: each word is quoted, and any may match."""
    found = re.findall(r"\w+", words)
    return " OR ".join(f'"{word}"' for word in found[:40])


def _gram_query(words: str) -> str:
    found = [word for word in re.findall(r"\S+", words) if len(word) >= 3]
    grams = {word[start : start + 3] for word in found[:20] for start in range(min(len(word), 30) - 2)}
    quoted = ('"{}"'.format(gram.replace('"', '""')) for gram in sorted(grams))
    return " AND ".join(quoted) if 0 < len(grams) <= 200 else ""


def remove_snapshot(connection: sqlite3.Connection, snapshot: int) -> int:
    """Remove a snapshot with its records; how many they were."""
    rows = connection.execute("SELECT record FROM records WHERE snapshot = ?", [snapshot]).fetchall()
    remove_records(connection, [record for (record,) in rows])
    for table in ("files", "snapshots"):
        connection.execute(f"DELETE FROM {table} WHERE snapshot = ?", [snapshot])
    return len(rows)


def remove_records(connection: sqlite3.Connection, records: Iterable[int]) -> None:
    """Remove records by their numbers, wherever they stand."""
    keys = [(record,) for record in records]
    for table, column in (
        ("records", "record"), ("places", "record"), ("anchors", "record"), ("words", "rowid"), ("grams", "rowid")
    ):  # fmt: skip
        connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", keys)


def insert_record(
    connection: sqlite3.Connection, snapshot: int, record: Record, digest: str, anchors: Iterable[str]
) -> None:
    """Add a record, and all by which it is found."""
    places = tuple((site.path, site.start, site.end, site.function) for site in record.sites)
    matchable = Matchable(
        record.id, record.project, record.language, record.kind, record.type, record.template, record.message_source,
        record.renders, places,
    )  # fmt: skip
    first = record.sites[0]
    text = _storable(record.text)
    cursor = connection.execute(
        "INSERT INTO records VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            snapshot, record.id, digest, _storable(record.type), text, record.kind, record.severity, record.language,
            _storable(first.path), first.start, _encode(matchable), zlib.compress(_encode(record), 1),
        ],
    )  # fmt: skip
    number = cursor.lastrowid
    names = {(file_name(path), last_name(function)) for path, _, _, function in places}
    connection.executemany(
        "INSERT INTO places VALUES (?, ?, ?)", [(_storable(n), _storable(f), number) for n, f in sorted(names)]
    )
    connection.executemany(
        "INSERT INTO anchors VALUES (?, ?)", [(_storable(word), number) for word in sorted(set(anchors))]
    )
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", record.type)
    where = " ".join(sorted({f"{path} {function}" for path, _, _, function in places})[:20])
    connection.execute(
        "INSERT INTO words (rowid, type, text, place) VALUES (?, ?, ?, ?)",
        [number, _storable(f"{record.type} {split}"), text, _storable(where)],
    )
    connection.execute("INSERT INTO grams (rowid, type, text) VALUES (?, ?, ?)", [number, _storable(record.type), text])


def make_current(connection: sqlite3.Connection, project: str, snapshot: int) -> None:
    """Let look-ups use this snapshot of the project."""
    connection.execute("UPDATE snapshots SET is_current = (snapshot = ?) WHERE project = ?", [snapshot, project])


def forget_unused_facts(connection: sqlite3.Connection) -> None:
    """Remove the facts of files that no snapshot has."""
    connection.execute("DELETE FROM file_facts WHERE (path, digest) NOT IN (SELECT path, digest FROM files)")


def _storable(text: str) -> str:
    """SQLite's text is UTF-8: what is none (a lone surrogate) is shown by a mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(
            path, f"its folder can't be made: {error.strerror or error}", "--store FILE names another place."
        ) from error


def _prepare(path: Path, connection: sqlite3.Connection, write: bool) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    is_empty = not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    if not is_empty and application != APPLICATION_ID:
        raise _unusable(path, "it is a database, but no catalog of windtunnel's", "--store FILE names another one.")
    if version > VERSION:
        problem = f"it was written by a newer windtunnel (format {version}; this one knows up to {VERSION})"
        raise _unusable(path, problem, "Update windtunnel, or name another file by --store.")
    if not write:
        if version < VERSION:
            problem = f"it has the older format {version}; this one is {VERSION}"
            raise _unusable(path, problem, "`windtunnel catalog index` brings it up to date.")
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if version < VERSION:
        migrate(connection, version)


def _unusable(path: Path, problem: str, remedy: str) -> StoreUnusable:
    return StoreUnusable(str(path), problem, remedy)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """What SQLite says → StoreUnusable, with the way out."""
    try:
        yield
    except sqlite3.Error as error:
        code = error.sqlite_errorname if hasattr(error, "sqlite_errorname") else ""
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise _unusable(
                path, "another process is writing to it", "Wait until it is done, then try again."
            ) from error
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            problem = f"it can't be opened or written: {error}"
            raise _unusable(
                path, problem, "Check its permissions and its folder's, or name another file by --store."
            ) from error
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise _unusable(
                path, f"the disk is full or broken: {error}", "Make room; what was there before is whole."
            ) from error
        remedy = "It was left as it is. Move it away and index again, or name another file by --store."
        raise _unusable(path, f"it is broken, or no catalog: {error}", remedy) from error
