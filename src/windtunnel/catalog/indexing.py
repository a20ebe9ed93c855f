"""A source → the store: reads what has changed, puts all facts together, writes what is new.

What makes a second run fast: a file whose stamp is known is not read, one whose content is known is not parsed, and a
record whose facts are the same is not written. The store changes in one transaction at the end, so a run that is cut
off has changed nothing.
"""

from __future__ import annotations

import gc
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import SequenceMatcher
from sqlite3 import Connection

import msgspec

import windtunnel
from windtunnel.catalog.assemble import Draft, assemble
from windtunnel.catalog.extract import LANGUAGES, digest_of, extract
from windtunnel.catalog.facts import FileFacts
from windtunnel.catalog.match.words import whole_words_of
from windtunnel.catalog.source import Source, SourceFile
from windtunnel.catalog.store import (
    Project,
    Store,
    forget_unused_facts,
    insert_record,
    make_current,
    remove_records,
)
from windtunnel.catalog.template import identity_of
from windtunnel.errors import CatalogSourceError

Progress = Callable[[int, int], None]
"""(files that are read, files in all)."""

_ANCHORS = 3
_LEAST_SIMILAR = 0.6
_MOST_PAIRS = 200_000
"""Of removed and added records that are compared for a message that was edited."""

_encode = msgspec.msgpack.Encoder().encode
_facts = msgspec.msgpack.Decoder(FileFacts)
_TOOL = f"{windtunnel.__version__}/3"
"""Facts that another windtunnel found are not used; the number counts changes of extraction within a version."""


@dataclass
class Indexed:
    """What an index run did."""

    project: Project
    num_read: int = 0
    """Files that were parsed."""
    num_added: int = 0
    num_changed: int = 0
    num_removed: int = 0
    num_aliases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Records of each kind."""


def index(
    source: Source, store: Store, *, project: str | None = None, on_progress: Progress = lambda done, total: None
) -> Indexed:
    """Bring the store up to date with a source. Raises CatalogSourceError, StoreUnusable."""
    with _collector_paused():
        return _index(source, store, project or source.name, on_progress)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Facts have no cycles, and are many: looking for cycles among them takes a fifth of the time and finds none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _index(source: Source, store: Store, name: str, on_progress: Progress) -> Indexed:
    files, facts, num_read = _facts_of(source, store, name, on_progress)
    indexed_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    drafts = list(
        assemble(
            facts, project=name, version=source.version, commit=source.commit, indexed_at=indexed_at,
            permalink=source.permalink,
        )
    )  # fmt: skip
    languages = Counter(str(draft.language) for draft in drafts)
    problems = tuple((each.path, each.problem) for each in facts if each.problem)
    snapshot = Project(
        name, source.version, source.commit, source.spec, indexed_at, windtunnel.__version__, len(drafts), len(facts),
        sum(each.num_lines for each in facts), dict(languages), problems,
    )  # fmt: skip
    indexed = Indexed(snapshot, num_read, kinds=Counter(str(draft.spots[0].site.kind) for draft in drafts))
    _write(store, snapshot, files, facts, drafts, indexed)
    return indexed


# --- facts ------------------------------------------------------------------------------------------------------------


def _facts_of(
    source: Source, store: Store, project: str, on_progress: Progress
) -> tuple[list[tuple[SourceFile, str]], list[FileFacts], int]:
    """Each file with its digest; the facts of all; how many were parsed."""
    known = _known_files(store, project, source.version)
    cached = {
        (path, digest): body
        for path, digest, body in store.connection.execute(
            "SELECT path, digest, body FROM file_facts WHERE tool = ?", [_TOOL]
        )
    }
    listed = list(source.files())
    if not listed:
        remedy = f"Sources in {', '.join(LANGUAGES)} are read."
        raise CatalogSourceError(source.spec, "it has no source files that can be read", remedy)
    files: list[tuple[SourceFile, str]] = []
    facts: list[FileFacts] = []
    num_read = 0
    for done, file in enumerate(listed):
        stamp, digest = known.get(file.path, ("", ""))
        data = None
        if stamp != file.stamp:
            data = source.read(file.path)
            digest = digest_of(data)
        body = cached.get((file.path, digest))
        if body is None:
            found = extract(file.path, source.read(file.path) if data is None else data)
            num_read += 1
        else:
            found = _facts.decode(zlib.decompress(body))
        files.append((file, digest))
        facts.append(found)
        if done % 64 == 0:
            on_progress(done, len(listed))
    on_progress(len(listed), len(listed))
    return files, facts, num_read


def _known_files(store: Store, project: str, version: str) -> dict[str, tuple[str, str]]:
    rows = store.connection.execute(
        "SELECT path, stamp, files.digest FROM files JOIN snapshots USING (snapshot) WHERE project = ? AND version = ?",
        [project, version],
    )
    return {path: (stamp, digest) for path, stamp, digest in rows}


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(
    store: Store,
    snapshot: Project,
    files: list[tuple[SourceFile, str]],
    facts: list[FileFacts],
    drafts: list[Draft],
    indexed: Indexed,
) -> None:
    with store.writing() as connection:
        before = connection.execute(
            "SELECT snapshot FROM snapshots WHERE project = ? AND is_current", [snapshot.name]
        ).fetchone()
        earlier = _identities(connection, before[0]) if before else {}
        row = connection.execute(
            "SELECT snapshot FROM snapshots WHERE project = ? AND version = ?", [snapshot.name, snapshot.version]
        ).fetchone()
        if row is None:
            cursor = connection.execute(
                "INSERT INTO snapshots VALUES (NULL, ?, ?, 0, ?)", [snapshot.name, snapshot.version, _encode(snapshot)]
            )
            number = int(cursor.lastrowid or 0)
        else:
            number = int(row[0])
            connection.execute("UPDATE snapshots SET facts = ? WHERE snapshot = ?", [_encode(snapshot), number])
        make_current(connection, snapshot.name, number)
        _write_files(connection, number, files, facts)
        _write_records(connection, number, drafts, indexed)
        indexed.num_aliases = _write_aliases(connection, earlier, drafts)
        forget_unused_facts(connection)


def _write_files(
    connection: Connection, snapshot: int, files: list[tuple[SourceFile, str]], facts: list[FileFacts]
) -> None:
    rows = connection.execute("SELECT path, stamp, digest FROM files WHERE snapshot = ?", [snapshot])
    known = {path: (stamp, digest) for path, stamp, digest in rows}
    changed = [(f, d, found) for (f, d), found in zip(files, facts, strict=True) if known.get(f.path) != (f.stamp, d)]
    gone = known.keys() - {file.path for file, _ in files}
    connection.executemany("DELETE FROM files WHERE snapshot = ? AND path = ?", [(snapshot, path) for path in gone])
    connection.executemany(
        "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", [(snapshot, f.path, f.stamp, d) for f, d, _ in changed]
    )
    connection.executemany(
        "INSERT OR IGNORE INTO file_facts VALUES (?, ?, ?, ?)",
        [(f.path, d, _TOOL, zlib.compress(_encode(found), 1)) for f, d, found in changed],
    )


def _write_records(connection: Connection, snapshot: int, drafts: list[Draft], indexed: Indexed) -> None:
    rows = connection.execute("SELECT id, digest, record FROM records WHERE snapshot = ?", [snapshot])
    known = {key: (digest, number) for key, digest, number in rows}
    wanted = [draft for draft in drafts if known.get(draft.id, ("", 0))[0] != draft.digest]
    gone = known.keys() - {draft.id for draft in drafts}
    remove_records(connection, [known[key][1] for key in gone])
    remove_records(connection, [known[draft.id][1] for draft in wanted if draft.id in known])
    frequency = Counter(word for draft in drafts for word in set(whole_words_of(draft.template)))
    for draft in wanted:
        words = sorted(set(whole_words_of(draft.template)), key=lambda word: (frequency[word], word))
        insert_record(connection, snapshot, draft.record(), draft.digest, words[:_ANCHORS])
    indexed.num_added = sum(draft.id not in known for draft in wanted)
    indexed.num_changed = len(wanted) - indexed.num_added
    indexed.num_removed = len(gone)


# --- ids that go on ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """Who a record is, for finding what became of it."""

    type: str
    text: str
    places: frozenset[tuple[str, str]]
    """Path and function."""


def _identities(connection: Connection, snapshot: int) -> dict[str, Identity]:
    from windtunnel.catalog.store import Matchable

    decode = msgspec.msgpack.Decoder(Matchable).decode
    found = {}
    for key, matchable in connection.execute("SELECT id, matchable FROM records WHERE snapshot = ?", [snapshot]):
        one = decode(matchable)
        places = frozenset((path, function) for path, _, _, function in one.places)
        found[key] = Identity(one.type, identity_of(one.template), places)
    return found


def _write_aliases(connection: Connection, earlier: Mapping[str, Identity], drafts: list[Draft]) -> int:
    """Hand the ids of records whose message was edited on to what became of them."""
    now = {draft.id for draft in drafts}
    removed = {key: identity for key, identity in earlier.items() if key not in now}
    added = {
        draft.id: Identity(draft.type, identity_of(draft.template), frozenset(draft.places))
        for draft in drafts
        if draft.id not in earlier
    }
    pairs = list(edited(removed, added))
    connection.executemany("INSERT OR IGNORE INTO aliases VALUES (?, ?)", pairs)
    return len(pairs)


def edited(removed: Mapping[str, Identity], added: Mapping[str, Identity]) -> Iterable[tuple[str, str]]:
    """Pairs of an old and a new id: same type, in the same function or file, and messages that are alike."""
    by_path: dict[tuple[str, str], list[str]] = {}
    for key, identity in added.items():
        for path, _ in identity.places:
            by_path.setdefault((identity.type, path), []).append(key)
    scored: list[tuple[bool, float, str, str]] = []
    for old, identity in removed.items():
        near = {new for path, _ in identity.places for new in by_path.get((identity.type, path), ())}
        for new in near:
            if len(scored) >= _MOST_PAIRS:
                break
            other = added[new]
            similar = SequenceMatcher(None, identity.text, other.text, autojunk=False).ratio()
            if similar >= _LEAST_SIMILAR:
                in_function = bool(identity.places & other.places)
                scored.append((in_function, similar, old, new))
    taken: set[str] = set()
    for _, _, old, new in sorted(scored, key=lambda pair: (not pair[0], -pair[1], pair[2], pair[3])):
        if old not in taken and new not in taken:
            taken |= {old, new}
            yield old, new
