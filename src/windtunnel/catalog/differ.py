"""What errors two versions of a project differ in: added, removed, reworded, moved, other guards, other severities.

Matched in tiers: records of equal type and message, wherever they stand; the same message in the same place with
another type; then, as a proposal only, messages of one type that are alike in the same function or file.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from windtunnel.catalog.indexing import Identity, edited
from windtunnel.catalog.record import Guard, Record, record_id
from windtunnel.catalog.template import identity_of

SCHEMA = "error-diff/1"


class Named(msgspec.Struct, frozen=True):
    """A record of one of the versions."""

    id: str
    type: str
    text: str
    path: str
    line: int


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record before and after."""

    before: Named
    after: Named
    was: str = ""
    now: str = ""
    """What has changed, in words of the code; empty: there was, or is, nothing."""


class Difference(msgspec.Struct, frozen=True):
    """What is different in the second version."""

    schema: str
    added: tuple[Named, ...]
    removed: tuple[Named, ...]
    reworded: tuple[Change, ...]
    """By likeness of messages in the same function or file: proposed, not certain."""
    moved: tuple[Change, ...]
    """Raised in another file or function, in more of them, or in fewer."""
    guards: tuple[Change, ...]
    """Raised under other conditions: those that were dropped, and those that came."""
    severities: tuple[Change, ...]
    retyped: tuple[Change, ...] = ()
    """The same message in the same place, of another type: what catches the one may not catch the other."""

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not any(getattr(self, field) for field in _FIELDS)


_FIELDS = ("added", "removed", "reworded", "retyped", "guards", "severities", "moved")

_Place = tuple[str, str]
"""Path and function."""
_Pairs = Sequence[tuple[Record, Record]]


def diff(before: Iterable[Record], after: Iterable[Record]) -> Difference:
    """Compare all records of two versions."""
    old, new = {_key(record): record for record in before}, {_key(record): record for record in after}
    renamed = _renamed_root([(old[key], new[key]) for key in old.keys() & new.keys()])
    gone = {key: _identity(old[key], renamed) for key in old.keys() - new.keys()}
    fresh = {key: _identity(new[key]) for key in new.keys() - old.keys()}
    retyped = _without(gone, fresh, _other_type(gone, fresh))
    reworded = _without(gone, fresh, edited(gone, fresh))
    pairs = [(key, key) for key in old.keys() & new.keys()] + retyped + reworded

    def ordered(keys: Iterable[tuple[str, str]]) -> _Pairs:
        return sorted(((old[a], new[b]) for a, b in keys), key=lambda pair: _order(pair[1]))

    both = ordered(pairs)
    return Difference(
        schema=SCHEMA,
        added=tuple(_named(new[key]) for key in sorted(fresh, key=lambda key: _order(new[key]))),
        removed=tuple(_named(old[key]) for key in sorted(gone, key=lambda key: _order(old[key]))),
        reworded=tuple(_change(a, b, a.text, b.text) for a, b in ordered(reworded)),
        moved=tuple(_moved(both, renamed)),
        guards=tuple(_guarded_otherwise(both, renamed)),
        severities=tuple(_change(a, b, a.severity, b.severity) for a, b in both if a.severity != b.severity),
        retyped=tuple(_change(a, b, a.type, b.type) for a, b in ordered(retyped)),
    )


# --- who is who -------------------------------------------------------------------------------------------------------


def _key(record: Record) -> str:
    """Who a record is, whichever project it is of."""
    return record_id("", record.language, record.type, record.template)


def _same(path: str) -> str:
    return path


def _renamed_root(both: _Pairs) -> Callable[[str], str]:
    """How paths before are called now, where all are below another folder: a wheel has no `src/`, a repository has."""
    roots: Counter[tuple[str, str]] = Counter()
    for a, b in both:
        if len(a.sites) == len(b.sites) == 1:
            was, now = a.sites[0].path.split("/"), b.sites[0].path.split("/")
            while was and now and was[-1] == now[-1]:
                was, now = was[:-1], now[:-1]
            roots["/".join(was), "/".join(now)] += 1
    (was_root, now_root), most = max(roots.items(), key=lambda root: root[1], default=(("", ""), 0))
    if was_root == now_root or most * 2 <= roots.total():
        return _same
    old, new = f"{was_root}/" if was_root else "", f"{now_root}/" if now_root else ""
    return lambda path: new + path[len(old) :] if path.startswith(old) else path


def _identity(record: Record, renamed: Callable[[str], str] = _same) -> Identity:
    places = frozenset((renamed(site.path), site.function) for site in record.sites)
    return Identity(record.type, identity_of(record.template), places)


def _other_type(gone: Mapping[str, Identity], fresh: Mapping[str, Identity]) -> Iterator[tuple[str, str]]:
    by_text: dict[str, list[str]] = defaultdict(list)
    for key in sorted(fresh):
        by_text[fresh[key].text].append(key)
    for old in sorted(gone):
        near = by_text[gone[old].text]
        found = next((key for key in near if fresh[key].places & gone[old].places), None)
        if found is not None:
            near.remove(found)
            yield old, found


def _without(
    gone: dict[str, Identity], fresh: dict[str, Identity], pairs: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The pairs, which are neither gone nor fresh any more."""
    found = list(pairs)
    for one, other in found:
        del gone[one], fresh[other]
    return found


def _named(record: Record) -> Named:
    site = record.sites[0]
    return Named(record.id, record.type, record.text, site.path, site.start)


def _change(before: Record, after: Record, was: str, now: str) -> Change:
    return Change(_named(before), _named(after), was, now)


def _order(record: Record) -> tuple[str, int, str]:
    return record.sites[0].path, record.sites[0].start, record.id


# --- what has changed -------------------------------------------------------------------------------------------------


def _moved(both: _Pairs, renamed: Callable[[str], str]) -> Iterator[Change]:
    for a, b in both:
        was = {(renamed(site.path), site.function) for site in a.sites}
        now = {(site.path, site.function) for site in b.sites}
        if was != now:
            yield _change(a, b, _places(was - now), _places(now - was))


def _places(places: Iterable[_Place]) -> str:
    return ", ".join(f"{path} in {function}" if function else path for path, function in sorted(places))


def _guarded_otherwise(both: _Pairs, renamed: Callable[[str], str]) -> Iterator[Change]:
    """Sites whose conditions are not the same any more; neither their lines nor their order count."""
    for a, b in both:
        was, now = _conditions(a, renamed), _conditions(b, _same)
        if len(was) == len(now) == 1:  # it may have moved
            was = dict.fromkeys(now, next(iter(was.values())))
        for place in sorted(was.keys() & now.keys()):
            for left, come in _unequal(was[place], now[place]):
                yield _change(a, b, ", ".join(left), ", ".join(come))


def _conditions(record: Record, renamed: Callable[[str], str]) -> dict[_Place, list[Counter[str]]]:
    found: dict[_Place, list[Counter[str]]] = defaultdict(list)
    for site in record.sites:
        found[renamed(site.path), site.function].append(Counter(map(_condition, site.guards)))
    return found


def _unequal(was: list[Counter[str]], now: list[Counter[str]]) -> Iterator[tuple[list[str], list[str]]]:
    """What is dropped and what comes, of sites in one place that are not under the same conditions."""
    left = [each for each in was if each not in now]
    come = [each for each in now if each not in was]
    for a, b in zip(left, come, strict=False):  # more or fewer sites of one function are no other conditions
        yield list((a - b).elements()), list((b - a).elements())


def _condition(guard: Guard) -> str:
    if guard.holds:
        return guard.condition
    is_simple = guard.condition.replace(".", "").replace("_", "").isalnum()
    return f"not {guard.condition}" if is_simple else f"not ({guard.condition})"


# --- in words ---------------------------------------------------------------------------------------------------------

_TITLES = {
    "added": "New errors", "removed": "Errors that are gone", "reworded": "Reworded (proposed)",
    "retyped": "Of another type", "guards": "Raised under other conditions", "severities": "Of other severity",
    "moved": "Raised in other places",
}  # fmt: skip
_COUNTED = {
    "added": "new", "removed": "gone", "reworded": "reworded", "retyped": "of another type",
    "guards": "under other conditions", "severities": "of other severity", "moved": "in other places",
}  # fmt: skip


def markdown(difference: Difference, before: str, after: str) -> str:
    """For a release note or a pull request."""
    lines = [f"# Errors from {before} to {after}", ""]
    if difference.is_empty:
        return "\n".join([*lines, "No difference."]) + "\n"
    counts = [f"{len(entries):,} {_COUNTED[field]}" for field in _FIELDS if (entries := getattr(difference, field))]
    lines += [f"{', '.join(counts)}.", ""]
    for field in _FIELDS:
        entries = getattr(difference, field)
        if entries:
            told = [line for entry in entries for line in _entry(entry, field)]
            if field == "moved":  # a reader of a release note can do without
                told = [f"<details><summary>{len(entries):,}</summary>", "", *told, "", "</details>"]
            lines += [f"## {_TITLES[field]}", "", *told, ""]
    return "\n".join(lines).rstrip() + "\n"


def _entry(entry: Named | Change, field: str) -> Iterator[str]:
    named = entry if isinstance(entry, Named) else entry.after
    head = f"- {_code(f'{named.type}: {named.text}')} ({named.path}:{named.line}, {named.id})"
    if isinstance(entry, Named):
        yield head
    elif field in ("retyped", "severities"):
        yield f"{head}: {entry.was} → {entry.now}"
    else:
        was, now = ("no longer", "now") if field == "moved" else ("was", "now")
        yield head
        if entry.was:
            yield f"  - {was}: {_code(entry.was)}"
        if entry.now:
            yield f"  - {now}: {_code(entry.now)}"


def _code(text: str) -> str:
    flat = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    return f"{fence} {flat} {fence}" if "`" in flat else f"`{flat}`"
