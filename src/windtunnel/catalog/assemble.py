"""Facts of all files → records. Sites of the same (project, language, type, template) make one record.

Two passes over the facts: first each site gets its message, which its class may have in another file; then the ways out
of each raising function are followed, and records that wrap or log one another are linked. A `Draft` holds all facts of
a record; its words are made when they are asked for, since one whose facts have not changed is in the store already.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import msgspec

import windtunnel
from windtunnel.catalog import go_names
from windtunnel.catalog.error_names import is_error_name
from windtunnel.catalog.facts import ClassFacts, Comment, Expectation, FileFacts, RaiseFacts
from windtunnel.catalog.flow import Call, Caught, Flow, Place, Ways
from windtunnel.catalog.record import (
    NOT_ANALYSED,
    Caller,
    Doc,
    Handler,
    Language,
    Line,
    Link,
    MessageSource,
    Propagation,
    Provenance,
    ProvokingTest,
    Quote,
    Record,
    Site,
    record_id,
)
from windtunnel.catalog.rust_flow import propagations_of
from windtunnel.catalog.rust_names import Names
from windtunnel.catalog.template import Hole, Part, identity_of, literals_of, merged, num_literal_characters, text_of

Permalink = Callable[[str, int, int], str | None]

FLOW_LANGUAGES = frozenset(("python", "rust"))
"""In which callers, handlers, tests and severity are looked for."""
_MOST_CALLERS = 12
_MOST_HANDLERS = 8
_MOST_TESTS = 6
_MOST_LINKS = 8
_LEAST_LITERAL = 6
"""Letters and digits that a test's pattern needs to stand for one record of several."""

_encode = msgspec.msgpack.Encoder().encode


class Spot(NamedTuple):
    """A site in the facts."""

    file: int
    site: RaiseFacts
    type_facts: tuple[int, ClassFacts] | None
    """The file and facts of its error class, where the tree has one."""


@dataclass(eq=False)
class Draft:
    """All facts of a record that is to be."""

    id: str
    type: str
    template: tuple[Part, ...]
    language: Language
    message_source: MessageSource
    spots: list[Spot] = field(default_factory=list)
    ways: list[Ways] = field(default_factory=list)
    wraps: dict[str, str] = field(default_factory=dict)
    """Ids of records that it is made from, and how."""
    wrapped_by: dict[str, str] = field(default_factory=dict)
    related: dict[str, str] = field(default_factory=dict)
    tests: list[tuple[int, ProvokingTest]] = field(default_factory=list)
    propagations: list[Propagation] = field(default_factory=list)
    digest: str = ""
    """Of all facts that the record is made from."""
    _assembly: Assembly | None = None

    @property
    def places(self) -> set[tuple[str, str]]:
        """Path and function of each site."""
        assert self._assembly is not None
        flow = self._assembly.flow
        return {(flow.files[s.file].path, flow.name(Place(s.file, s.site.function))) for s in self.spots}

    def record(self) -> Record:
        """The record with its quotes and words."""
        assert self._assembly is not None
        return self._assembly.record_of(self)


def assemble(
    files: Sequence[FileFacts],
    *,
    project: str,
    version: str,
    commit: str | None,
    indexed_at: str,
    permalink: Permalink,
) -> Iterator[Draft]:
    """Drafts of all records, by id. Pure: what it needs of the source stands in the facts."""
    assembly = Assembly(files, project, Provenance(windtunnel.__version__, version, commit, indexed_at), permalink)
    for key in sorted(assembly.drafts):
        yield assembly.drafts[key]


class Assembly:
    """The drafts of a source, while they are put together."""

    def __init__(self, files: Sequence[FileFacts], project: str, provenance: Provenance, permalink: Permalink) -> None:
        self.files = files
        self.flow = Flow(files)
        self._rust = Names(files)
        self.project = project
        self._provenance = provenance
        self._permalink = permalink
        self.drafts: dict[str, Draft] = {}
        self._classes = _classes_by_name(files)
        self._at: dict[tuple[int, int], str] = {}
        """The record of a site, by file and line."""
        self._in_function: dict[Place, dict[str, None]] = defaultdict(dict)
        self._gather()
        self._follow()
        self._link_propagations()
        self._link_tests()
        self._link_neighbours()
        for draft in self.drafts.values():
            draft.digest = self._digest(draft)
            draft._assembly = self

    # --- messages -------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        for index, facts in enumerate(self.files):
            if facts.is_test:
                continue
            source: MessageSource
            for site in facts.raises:
                known = self._class_of(index, site.type)
                if _is_handed_on(facts.language, site) and not self._is_error(site.type, known):
                    continue
                type_ = known[1].name if known is not None else _simple(site.type, facts.language)
                template, source = self._class_template(site, known), "message"
                is_unsure = facts.language == "rust" and site.template is None and site.message_source == "statement"
                if template is None and is_unsure:
                    continue
                if template is None:
                    template, source = site.template, site.message_source
                if template is None or not any(template):
                    template = (site.statement,)
                    source = "condition" if site.message_source == "condition" else "statement"
                key = record_id(self.project, facts.language, type_, template)
                draft = self.drafts.get(key)
                if draft is None:
                    draft = self.drafts[key] = Draft(key, type_, template, facts.language, source)
                draft.spots.append(Spot(index, site, known))
                self._at[index, site.start] = key
                self._in_function[Place(index, site.function)][key] = None
        for draft in self.drafts.values():  # where it is raised tells more than where another like it is made
            raised = [spot for spot in draft.spots if not _is_handed_on(draft.language, spot.site)]
            draft.spots = raised or draft.spots

    def _is_error(self, name: str, known: tuple[int, ClassFacts] | None) -> bool:
        """Whether a class is an error: by its bases, or where the tree does not have it, by its name."""
        simple = name.rpartition(".")[2]
        return is_error_name(simple) if known is None else self.flow.is_error(known[1].name)

    def _class_of(self, file: int, name: str) -> tuple[int, ClassFacts] | None:
        """The class of a type, as the file writes it: its own, an imported one, or the only one of that name."""
        if self.files[file].language == "rust":
            return self._rust.variant(file, name)
        simple = name.rpartition(".")[2]
        known = self._classes.get(self.files[file].language, {}).get(simple, ())
        if self.files[file].language == "go":
            package = self.flow.imported(file, name.rpartition(".")[0])
            position = go_names.class_of(self.files, known, file, name, package)
            return None if position is None else known[position]
        for index, facts in known:
            if index == file:
                return index, facts
        target = self.flow.imported(file, name.partition(".")[0])
        for index, facts in known:
            if target and self.flow.is_in_module(index, target):
                return index, facts
        return known[0] if len(known) == 1 else None

    def _class_template(self, site: RaiseFacts, known: tuple[int, ClassFacts] | None) -> tuple[Part, ...] | None:
        """The message that the class makes of the site's arguments."""
        seen: set[str] = set()
        parameters: tuple[tuple[str, str], ...] = ()
        texts: dict[str, tuple[Part, ...]] = {}
        while known is not None and known[1].name not in seen:
            index, facts = known
            seen.add(facts.name)
            parameters = parameters or facts.parameters
            texts = {**facts.texts, **texts}
            template = facts.template if facts.template is not None else texts.get(facts.uses_text)
            if template is not None and any(isinstance(part, str) or part.expression for part in template):
                return _bound(template, parameters, site.arguments)
            known = next((found for base in facts.bases if (found := self._class_of(index, base)) is not None), None)
        return None

    # --- ways out -------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        memory: dict[tuple[Place, int, str], Ways] = {}
        for draft in self.drafts.values():
            if draft.language not in FLOW_LANGUAGES:
                continue
            for spot in draft.spots:
                if _has_no_way_out(draft.language, spot.site):
                    continue
                place = Place(spot.file, spot.site.function)
                # handlers around the line make a difference, the line itself does not
                around = [h.start for h in self.flow.catching(place.file, spot.site.start, place.function, draft.type)]
                key = (place, around[0] if around else 0, draft.type)
                if key not in memory:
                    memory[key] = self.flow.ways(place, spot.site.start, draft.type)
                if draft.language == "rust" and spot.site.kind in ("panic", "assert"):
                    draft.ways.append(memory[key]._replace(caught=()))  # what handles an `Err` sees no panic
                    continue
                draft.ways.append(memory[key])
                self._link_handlers(draft, memory[key])

    def _link_handlers(self, draft: Draft, ways: Ways) -> None:
        """What a handler raises instead is made from this error; what it logs is told of it."""
        for caught in ways.caught[:_MOST_HANDLERS]:
            for line in range(caught.handler.start, caught.handler.end + 1):
                other = self._at.get((caught.file, line))
                if other is not None and other != draft.id and caught.handler.does in ("wraps", "logs"):
                    how = "wrapped by" if caught.handler.does == "wraps" else "logged by"
                    draft.wrapped_by.setdefault(other, how)
                    self.drafts[other].wraps.setdefault(draft.id, "wraps" if how == "wrapped by" else "logs")

    # --- conversions, tests and neighbours -------------------------------------------------------------------------

    def _link_propagations(self) -> None:
        """Variants that `?` makes, and those with a message that nothing makes: the definition is their site."""
        found = propagations_of(self.files, self._rust)
        made = {(spot.type_facts[0], spot.type_facts[1].name) for spot in self._spots() if spot.type_facts is not None}
        for index, facts in enumerate(self.files):
            for each in facts.classes if facts.language == "rust" and not facts.is_test else ():
                places = found.get((index, each.name), [])
                if not places and ((index, each.name) in made or not _is_of_thiserror(each)):
                    continue
                template = each.template or (each.name,)
                key = record_id(self.project, facts.language, each.name, template)
                draft = self.drafts.get(key)
                if draft is None:
                    draft = self.drafts[key] = Draft(key, each.name, template, facts.language, "message")
                    draft.spots.append(Spot(index, _of_variant(each), (index, each)))
                    if places:
                        draft.ways.append(self._ways_of_propagations(places, each.name))
                draft.propagations += places

    def _spots(self) -> Iterator[Spot]:
        for draft in self.drafts.values():
            yield from draft.spots

    def _ways_of_propagations(self, places: Sequence[Propagation], type_: str) -> Ways:
        """The ways out of all functions that convert."""
        paths = {facts.path: index for index, facts in enumerate(self.files)}
        calls, ends, caught, complete = list[Call](), list[tuple[Place, ...]](), list[Caught](), True
        for place in places:
            file = paths[place.path]
            function = self.flow.enclosing(file, place.line)
            ways = self.flow.ways(function, place.line, type_)
            calls += ways.calls
            ends += ways.ends
            caught += ways.caught
            complete = complete and ways.is_complete
        handlers = {(one.file, one.handler.start, one.handler.body_start): one for one in reversed(caught)}
        found = tuple(reversed(handlers.values()))
        return Ways(tuple(dict.fromkeys(calls)), tuple(dict.fromkeys(ends)), found, complete)

    def _link_tests(self) -> None:
        by_type: dict[str, list[Draft]] = defaultdict(list)
        for draft in self.drafts.values():
            if draft.language in FLOW_LANGUAGES:
                by_type[draft.type.rpartition(".")[2]].append(draft)
        texts = {draft.id: identity_of(draft.template) for drafts in by_type.values() for draft in drafts}
        for facts in self.files:
            for expected in facts.expectations:
                if num_literal_characters((expected.pattern,)) < _LEAST_LITERAL:
                    continue
                candidates = by_type.get(expected.type.rpartition(".")[2], [])
                found = [draft for draft in candidates if _is_expected(draft.template, texts[draft.id], expected)]
                if len(found) == 1 and len(found[0].tests) < _MOST_TESTS:
                    function = facts.functions[expected.function].qualified if expected.function >= 0 else ""
                    found[0].tests.append((0, ProvokingTest(facts.path, expected.line, function)))

    def _link_neighbours(self) -> None:
        for records in self._in_function.values():
            if 1 < len(records) <= _MOST_LINKS:
                for one in records:
                    for other in records:
                        if other != one:
                            self.drafts[one].related.setdefault(other, "same function")
        enums: dict[tuple[str, str], list[str]] = defaultdict(list)
        for draft in self.drafts.values():
            if draft.language == "rust" and "::" in draft.type:
                enums[draft.language, draft.type.rpartition("::")[0]].append(draft.id)
        for members in enums.values():
            for one in members:
                for other in members[: _MOST_LINKS + 1]:
                    if other != one:
                        self.drafts[one].related[other] = "same enum"

    # --- the record -----------------------------------------------------------------------------------------------

    def _digest(self, draft: Draft) -> str:
        """Of all that the record is made from."""
        facts = (
            draft.template,
            draft.message_source,
            [(self.files[spot.file].path, spot.site, self._around(spot)) for spot in draft.spots],
            [self._names(ways) for ways in draft.ways],
            sorted(draft.wraps.items()),
            sorted(draft.wrapped_by.items()),
            sorted(draft.related.items()),
            draft.tests,
            draft.propagations,
            windtunnel.__version__,
        )
        return hashlib.blake2b(_encode(facts), digest_size=12).hexdigest()

    def _around(self, spot: Spot) -> tuple[object, ...]:
        """The facts of a site's function and class."""
        facts = self.files[spot.file]
        function = facts.functions[spot.site.function] if spot.site.function >= 0 else None
        return function, None if spot.type_facts is None else (self.files[spot.type_facts[0]].path, spot.type_facts[1])

    def _names(self, ways: Ways) -> tuple[object, ...]:
        return (
            [(self.files[call.caller.file].path, call.line, self.flow.name(call.caller)) for call in ways.calls],
            [[self.flow.name(place) for place in end] for end in ways.ends],
            [
                (self.files[caught.file].path, caught.handler, [self.flow.name(p) for p in caught.via])
                for caught in ways.caught
            ],
            ways.is_complete,
        )

    def record_of(self, draft: Draft) -> Record:
        """Make a draft's record."""
        from windtunnel.catalog.describe import describe

        first = draft.spots[0]
        quotes = Quotes()
        ways = iter(draft.ways)
        sites = []
        for spot in draft.spots:
            found = self._ways_of(draft, spot, ways)
            sites.append(self._site(draft, spot, found, quotes, is_first=spot is first))
        record = Record(
            schema="error-record/1",
            id=draft.id,
            project=self.project,
            language=draft.language,
            kind=first.site.kind,
            type=draft.type,
            template=draft.template,
            message_source=draft.message_source,
            sites=tuple(sites),
            provenance=self._provenance,
            renders=first.type_facts[1].renders if first.type_facts else None,
            wraps=self._links(draft.wraps) + self._causes(draft),
            wrapped_by=self._links(draft.wrapped_by),
            related=self._links(draft.related),
        )
        for each in draft.propagations:
            quotes.add(each.path, (Line(each.line, each.expression),))
        record = describe(record, [self._told(ways) for ways in draft.ways], quotes)
        return msgspec.structs.replace(record, quotes=quotes.beyond(sites))

    def _ways_of(self, draft: Draft, spot: Spot, ways: Iterator[Ways]) -> Ways | None:
        if draft.language not in FLOW_LANGUAGES or _has_no_way_out(draft.language, spot.site):
            return None
        return next(ways, None)

    def _site(self, draft: Draft, spot: Spot, ways: Ways | None, quotes: Quotes, *, is_first: bool) -> Site:
        facts, site = self.files[spot.file], spot.site
        function = facts.functions[site.function] if site.function >= 0 else None
        analysed = draft.language in FLOW_LANGUAGES and not _is_handed_on(draft.language, site)
        analysed = analysed and (site.kind != "variant" or bool(draft.propagations))
        return Site(
            path=facts.path, start=site.start, end=site.end, function=function.qualified if function else "",
            excerpt=site.excerpt, permalink=self._permalink(facts.path, site.start, site.end), guards=site.guards,
            cause=site.cause, docs=tuple(self._docs(spot, quotes)),
            callers=tuple(self._callers(ways, quotes)) if analysed else NOT_ANALYSED,
            handlers=tuple(self._handlers(ways, quotes)) if analysed else NOT_ANALYSED,
            tests=tuple(test for _, test in draft.tests) if analysed and is_first else () if analysed else NOT_ANALYSED,
            propagations=tuple(draft.propagations) if is_first else (),
        )  # fmt: skip

    def _docs(self, spot: Spot, quotes: Quotes) -> Iterator[Doc]:
        """What comments say: of the statement, of the type, of the function."""
        facts = self.files[spot.file]
        commented: list[tuple[int, Comment | None, str]] = [(spot.file, spot.site.comment, "comment")]
        if spot.type_facts is not None:
            index, type_facts = spot.type_facts
            commented.append((index, type_facts.doc, "variant" if "::" in type_facts.name else "type"))
        if spot.site.function >= 0:
            commented.append((spot.file, facts.functions[spot.site.function].doc, "function"))
        for file, comment, of in commented:
            if comment is not None and comment.text.strip():
                path = self.files[file].path
                quotes.add_text(path, comment.start, comment.end, comment.text)
                yield Doc(path, comment.start, comment.end, comment.text, of)

    def _callers(self, ways: Ways | None, quotes: Quotes) -> Iterator[Caller]:
        """Calls of the function itself, then where the ways through it begin."""
        if ways is None:
            return
        for call in ways.calls[:_MOST_CALLERS]:
            yield Caller(self.files[call.caller.file].path, call.line, self.flow.name(call.caller))
        for end in ways.ends[:_MOST_CALLERS]:
            if len(end) > 2:
                function = self.flow.function(end[-1])
                path, names = self.files[end[-1].file].path, [self.flow.name(place) for place in reversed(end[1:-1])]
                if function is not None:
                    quotes.add(path, (Line(function.start, function.head),))
                    yield Caller(path, function.start, function.qualified, tuple(names))

    def _handlers(self, ways: Ways | None, quotes: Quotes) -> Iterator[Handler]:
        for caught in ways.caught[:_MOST_HANDLERS] if ways is not None else ():
            yield self._handler(caught, quotes)

    def _handler(self, caught: Caught, quotes: Quotes) -> Handler:
        path, clause = self.files[caught.file].path, caught.handler
        quotes.add(path, clause.lines)
        via = tuple(self.flow.name(place) for place in reversed(caught.via[:-1]))
        name = self.flow.name(caught.via[-1])
        return Handler(path, clause.start, clause.end, name, clause.catches, clause.does, via)

    def _told(self, ways: Ways) -> Told:
        ends = [tuple(self.flow.name(place) or self.files[place.file].path for place in end) for end in ways.ends]
        return Told(tuple(ends), ways.is_complete)

    def _links(self, found: dict[str, str]) -> tuple[Link, ...]:
        others = [(self.drafts[key], how) for key, how in sorted(found.items())][:_MOST_LINKS]
        return tuple(Link(other.type, text_of(other.template), other.id, how) for other, how in others)

    def _causes(self, draft: Draft) -> tuple[Link, ...]:
        """Types that it is made from which are no records here."""
        known = {self.drafts[key].type for key in draft.wraps}
        causes = dict.fromkeys(
            type_ for spot in draft.spots if spot.site.cause for type_ in spot.site.cause.types if type_ not in known
        )
        return tuple(Link(type_, reason="wraps") for type_ in list(causes)[:_MOST_LINKS])


class Told(NamedTuple):
    """What is known of the ways out of a site's function."""

    ends: tuple[tuple[str, ...], ...]
    """Functions from the raising one to one that nobody is known to call."""
    is_complete: bool


class Quotes:
    """Lines that a record's claims cite."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, str]] = defaultdict(dict)

    def add(self, path: str, lines: Sequence[Line]) -> None:
        """Lines as they stand in the file."""
        for line in lines:
            self._lines[path].setdefault(line.number, line.text)

    def add_text(self, path: str, start: int, end: int, text: str) -> None:
        """A comment, whose marks are gone; what is longer than its lines goes into the last one."""
        texts = text.split("\n")
        for offset in range(end - start + 1):
            if offset < len(texts):
                rest = texts[offset:] if offset == end - start else texts[offset : offset + 1]
                self._lines[path].setdefault(start + offset, " ".join(rest))

    def beyond(self, sites: Sequence[Site]) -> tuple[Quote, ...]:
        """What the sites' excerpts do not show."""
        shown = {(site.path, line.number) for site in sites for line in site.excerpt}
        found = []
        for path, lines in sorted(self._lines.items()):
            kept = tuple(Line(number, text) for number, text in sorted(lines.items()) if (path, number) not in shown)
            if kept:
                found.append(Quote(path, kept))
        return tuple(found)


def _is_of_thiserror(each: ClassFacts) -> bool:
    """A variant with an `#[error]` of its own words; an enum that writes a text in another way may be no error."""
    return num_literal_characters(each.template or ()) > 0 and any(
        line.text.lstrip().startswith("#[error") for line in each.excerpt
    )


def _of_variant(variant: ClassFacts) -> RaiseFacts:
    """A variant that is only converted to has its own declaration for a site."""
    words = " ".join(line.text.strip() for line in variant.excerpt)
    return RaiseFacts(
        "variant",
        variant.start,
        variant.end,
        -1,
        variant.name,
        variant.template,
        words,
        variant.excerpt,
        cause=variant.cause,
    )


def _classes_by_name(files: Sequence[FileFacts]) -> dict[Language, dict[str, list[tuple[int, ClassFacts]]]]:
    found: dict[Language, dict[str, list[tuple[int, ClassFacts]]]] = defaultdict(lambda: defaultdict(list))
    for index, facts in enumerate(files):
        for each in facts.classes:
            found[facts.language][each.name.rpartition(".")[2]].append((index, each))
    return found


def _is_handed_on(language: Language, site: RaiseFacts) -> bool:
    """Made, and raised elsewhere, if at all: where is not followed."""
    return language == "python" and site.kind == "construct"


def _has_no_way_out(language: Language, site: RaiseFacts) -> bool:
    return site.kind in ("log", "fatal log") or _is_handed_on(language, site)


def _simple(type_: str, language: Language) -> str:
    """A type as messages name it: Python's tracebacks leave out what it was imported through, Rust's never show it."""
    if language == "rust":
        *_, owner, name = ("", *type_.split("::"))
        if owner[:1].isupper() or name[:1].isupper():
            return f"{owner}::{name}" if owner[:1].isupper() else name
    return type_.rpartition(".")[2] if language == "python" and not type_.islower() and "." in type_ else type_


def _bound(
    template: tuple[Part, ...],
    parameters: tuple[tuple[str, str], ...],
    arguments: tuple[tuple[str, tuple[Part, ...]], ...],
) -> tuple[Part, ...]:
    """A class's template with what a site gives for its parameters, where that is text."""
    names = [name for name, _ in parameters]
    given: dict[str, tuple[Part, ...]] = {}
    for position, (keyword, value) in enumerate(arguments):
        name = keyword or (names[position] if position < len(names) else "")
        if name:
            given[name] = value
    parts: list[Part] = []
    for part in template:
        value = given.get(part.expression, ()) if isinstance(part, Hole) else ()
        parts += value if any(isinstance(each, str) for each in value) else (part,)
    return merged(parts)


def _is_expected(template: tuple[Part, ...], text: str, expected: Expectation) -> bool:
    """Whether a test's pattern is one of this template's messages; `text` is the template's."""
    if not expected.is_regex:
        pattern = expected.pattern
        return pattern in text or any(len(part) > _LEAST_LITERAL and part in pattern for part in literals_of(template))
    at = 0
    pieces = _literal_pieces(expected.pattern)
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return bool(pieces)


@lru_cache(maxsize=1000)
def _literal_pieces(pattern: str) -> tuple[str, ...]:
    """What a regular expression has to find as it is."""
    plain = re.sub(r"\\(.)", r"\1", re.sub(r"\.[*+]\??|\\[dws][*+]?", "{}", pattern)).strip("^$")
    return tuple(piece for piece in plain.split("{}") if piece)
