"""A record's words, made from its facts alone: every sentence cites the lines that it was made from.

Nothing is concluded that the facts do not say. Where they say nothing a sentence is left out, not filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from windtunnel.catalog.conditions import Atom, Condition, Several, all_hold, code, literal_items, of_truth_values, read
from windtunnel.catalog.record import (
    NOT_ANALYSED,
    Citation,
    Claim,
    Doc,
    Guard,
    Handled,
    Handler,
    NotAnalysed,
    Origin,
    Propagation,
    Prose,
    Record,
    Severity,
    Site,
)
from windtunnel.catalog.template import Hole

if TYPE_CHECKING:
    from windtunnel.catalog.assemble import Quotes, Told

_MOST_GUARDS = 5
_MOST_SITES_TOLD = 4
_MOST_WAYS = 4
_SEVERITIES: tuple[Severity, ...] = get_args(Severity)

_BOOLEAN = frozenset(("rust", "go", "java"))
"""Languages whose conditions are truth values."""
_PANICS = ("panic", "assert")
"""Kinds that, in Rust, unwind instead of giving an `Err`."""

_IS_FAILURE = re.compile(r"\w*[eE]rr\s*[!=]=\s*nil$")
"""Go's question whether something before it failed."""

_OF_TYPE = {
    "ValueError": "A value that {function} was given, or found, is not acceptable",
    "TypeError": "{function} was given something of a type that it can't use",
    "KeyError": "{function} looks for a key that is not there",
    "IndexError": "{function} looks for a position that is not there",
    "AttributeError": "{function} looks for an attribute that is not there",
    "NotImplementedError": "{function} is asked for something that is not implemented",
    "ImportError": "{function} needs a package that can't be imported",
    "ModuleNotFoundError": "{function} needs a package that is not installed",
    "FileNotFoundError": "{function} needs a file that is not there",
    "FileExistsError": "{function} finds a file where there must be none",
    "PermissionError": "{function} is not allowed to do something",
    "TimeoutError": "{function} has waited as long as it may",
    "ConnectionError": "{function} has lost a connection, or gets none",
    "MemoryError": "{function} needs more memory than there is",
    "StopIteration": "{function} has come to its end",
    "EnvironmentError": "{function} does not find its environment as it needs it",
    "OSError": "The operating system refused {function} something",
}
_ENVIRONMENT = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]+(?:[-_][a-z0-9]+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\s*\n")
_ENVIRONMENT_LOOKUP = re.compile(r"environ|getenv|env::var|envs\.|process\.env|LookupEnv")


def describe(record: Record, told: Sequence[Told], quotes: Quotes) -> Record:
    """The record with its prose, `handled` and severity."""
    handled, severity, evidence = _impact(record, told)
    prose = Prose(
        meaning=tuple(_meaning(record)),
        trigger=tuple(_trigger(record)),
        situations=tuple(_situations(record, told)),
        solutions=tuple(_solutions(record)),
    )
    return msgspec.structs.replace(
        record, prose=prose, handled=handled, severity=severity, severity_evidence=tuple(evidence)
    )


def _claim(text: str, citations: Iterable[Citation], origin: Origin = "code", sample: str | None = None) -> Claim:
    return Claim(" ".join(text.split()), tuple(dict.fromkeys(citations)), origin, sample)


def _at(site: Site) -> Citation:
    """The statement, as far as the excerpt shows it."""
    shown = [line.number for line in site.excerpt if site.start <= line.number <= site.end]
    return Citation(site.path, site.start, max(shown, default=site.start))


def _of_guard(site: Site, guard: Guard) -> Citation:
    return Citation(site.path, guard.start, guard.end)


def _function(site: Site) -> str:
    return code(site.function) if site.function else f"the top of {code(site.path)}"


# --- meaning ----------------------------------------------------------------------------------------------------------


def _meaning(record: Record) -> Iterator[Claim]:
    texts: set[str] = set()
    for claim in _raw_meaning(record):
        if claim.text not in texts:  # one comment may be of the type and of its statement
            texts.add(claim.text)
            yield claim


def _raw_meaning(record: Record) -> Iterator[Claim]:
    site = _telling(record)
    docs = {doc.of: doc for doc in reversed(site.docs)}
    for of in ("variant", "type", "comment"):
        if of in docs and (of != "type" or not _is_builtin(record.type)) and (text := _first_sentence(docs[of])):
            yield _claim(text, [_of_doc(docs[of])], "doc comment")
    if raises := _raises_section(docs.get("function"), record.type):
        yield _claim(raises, [_of_doc(docs["function"])], "doc comment")
    if _is_declared_only(record, site):
        yield _claim(f"{code(record.type)} stands for {_quoted(record.text)} in {code(site.path)}.", [_at(site)])
    elif record.kind != "variant":
        yield _claim(_statement_words(record, site), [_at(site)])
    if site.cause is not None and (caught := _cause_words(record, site)):
        yield caught
    if "function" in docs and (text := _first_sentence(docs["function"])):
        verb = "made" if _is_handed_on(record) else "raised"
        yield _claim(
            f"{_function(site)} is where it is {verb}: {text}", [_of_doc(docs["function"]), _at(site)], "doc comment"
        )


def _is_builtin(type_: str) -> bool:
    import builtins

    return hasattr(builtins, type_.rpartition(".")[2])


def _of_doc(doc: Doc) -> Citation:
    return Citation(doc.path, doc.start, doc.end)


def _first_sentence(doc: Doc) -> str:
    """The first sentence of a comment; nothing where it is no prose."""
    text = " ".join(_SENTENCE.split(doc.text.strip())[0].split()).replace("``", "`")
    if len(text) < 8 or re.match(
        r"(?:noqa|type:|pylint|pragma|TODO|FIXME|XXX|HACK|eslint|@ts-|NOLINT|Args:|Parameters)", text
    ):
        return ""
    return text if text[-1] in ".!?:" else f"{text}."


def _raises_section(doc: Doc | None, type_: str) -> str:
    """What a docstring's `Raises` says of the type."""
    if doc is None:
        return ""
    match = re.search(
        rf"(?:^|\n)\s*:?(?:raises\s+)?{re.escape(type_.rpartition('.')[2])}\s*:\s*(.+?)(?:\n\s*\n|\n\s*\w+\s*:|$)",
        doc.text,
        re.DOTALL,
    )
    if match is None or "aises" not in doc.text:
        return ""
    text = " ".join(match[1].split())
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if len(text) > 4 else ""


def _statement_words(record: Record, site: Site) -> str:
    function, message = _function(site), _quoted(record.text)
    if record.kind in ("log", "fatal log"):
        return f"{function[0].upper()}{function[1:]} logs this by {code(record.type)}: {message}."
    if record.message_source == "condition":
        return f"{function[0].upper()}{function[1:]} relies on {code(record.text)}, and it does not hold."
    if record.kind in ("assert", "check"):
        return f"A check in {function} failed: {message}."
    if record.kind == "usage":
        return f"The command line can't be used as it is: {message}."
    if record.kind == "exit":
        return f"The process ends in {function}: {message}."
    if record.message_source == "statement":
        verb = "makes" if _is_handed_on(record) else "raises"
        return (
            f"{function[0].upper()}{function[1:]} {verb} it by {code(record.text)}, without a message of its own here."
        )
    if _is_handed_on(record):
        return f"{function[0].upper()}{function[1:]} makes it and hands it on: {message}."
    words = _OF_TYPE.get(record.type, "{function} can't go on").format(function=function)
    return f"{words[0].upper()}{words[1:]}: {message}."


def _quoted(text: str) -> str:
    short = " ".join(text.split())
    short = short if len(short) <= 200 else f"{short[:199]}…"
    return f"“{short.rstrip('.')}”"


def _cause_words(record: Record, site: Site) -> Claim | None:
    assert site.cause is not None
    types = " or ".join(code(type_) for type_ in site.cause.types)
    if not types:
        return None
    cited = [Citation(site.path, site.cause.line, site.cause.line), _at(site)]
    if site.cause.how == "during handling":
        if record.kind in ("log", "fatal log"):
            return _claim(f"It tells of {types}, which was caught.", cited)
        return _claim(f"It is raised while {types} is handled, which stands before it in the traceback.", cited)
    if site.cause.types in ((), ("anything",)):
        return None
    return _claim(f"It is made from {types} ({site.cause.how}), which says what went wrong first.", cited)


def _is_handed_on(record: Record) -> bool:
    """An error that is made and returned, kept or given away; who raises it is not followed."""
    return (record.language == "python" and record.kind == "construct") or (
        record.language in ("typescript", "javascript", "java") and record.kind == "error value"
    )


def _is_declared_only(record: Record, site: Site) -> bool:
    """A variable of Go that holds an error, and a variant of Rust that is only defined: both are raised elsewhere."""
    if record.kind == "variant":
        return not any(each.propagations for each in record.sites)
    return record.language == "go" and not site.function and record.kind == "error value"


def _telling(record: Record) -> Site:
    """The site that tells most: the first that is no declaration; else the declaration."""
    return next((site for site in record.sites if not _is_declared_only(record, site)), record.sites[0])


# --- trigger ----------------------------------------------------------------------------------------------------------


def _trigger(record: Record) -> Iterator[Claim]:
    if record.kind == "variant":
        yield from _conversions(record)
        return
    sites = [site for site in record.sites if not _is_declared_only(record, site)]
    told: dict[str, list[Site]] = {}
    for site in sites:
        told.setdefault(_trigger_words(record, site), []).append(site)
    for words, places_ in list(told.items())[:_MOST_SITES_TOLD]:
        yield _claim(words, [c for s in places_ for c in (_at(s), *(_of_guard(s, g) for g in _told_guards(s)))])
    rest = [site for words in list(told)[_MOST_SITES_TOLD:] for site in told[words]]
    if rest:
        places = sorted({site.path for site in rest})
        named = ", ".join(code(path) for path in places[:4]) + (" and others" if len(places) > 4 else "")
        verb = "make" if _is_handed_on(record) else "raise"
        yield _claim(f"{len(rest)} more places {verb} it, in {named}.", [_at(site) for site in rest])


def _conversions(record: Record) -> Iterator[Claim]:
    """The `?` that make a variant, function by function; where there are none it is only defined."""
    if not any(site.propagations for site in record.sites):
        words = (
            f"Where {code(record.type)} is made was not found in this source: in other code, in a way that is not read"
        )
        yield _claim(f"{words}, or nowhere. Its definition stands here.", [_at(site) for site in record.sites])
        return
    by_function: dict[tuple[str, str], list[Propagation]] = {}
    for site in record.sites:
        for each in site.propagations:
            by_function.setdefault((each.path, each.function), []).append(each)
    for (_, function), places in by_function.items():
        operations = list(dict.fromkeys(code(each.expression) for each in places))
        cited = [Citation(each.path, each.line, each.line) for each in places]
        yield _claim(f"Made by `?` in {code(function)} when {_any_of(operations)} fails.", cited)


def _any_of(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _told_guards(site: Site) -> tuple[Guard, ...]:
    """The innermost ones; those that are nearest decide."""
    return site.guards[-_MOST_GUARDS:]


def _trigger_words(record: Record, site: Site) -> str:
    verb = {"log": "Logged", "fatal log": "Logged", "variant": "Made", "error value": "Made"}.get(record.kind, "Raised")
    verb = "Made" if _is_handed_on(record) else verb
    guards = _told_guards(site)
    subjects = {_subject(guard) for guard in guards if guard.kind != "early exit"} - {""}
    passed = [guard for guard in guards if guard.kind == "early exit" and _subject(guard) not in subjects]
    deciding = [guard for guard in guards if guard not in passed]
    when, before = _conditions(record, deciding), _conditions(record, passed)
    before = [words for words in before if words not in when]
    if not when and not any(guard.kind == "except" for guard in deciding):
        when, before = before, []
    context = [*_loops(guards), *_handlers_around(guards)]
    sentence = f"{verb} in {_function(site)}"
    if when:
        sentence += f" when {_listed(when)}"
    if context:
        sentence += f", {', '.join(context)}"
    compiled = [guard for guard in site.guards if guard.kind == "cfg"]
    if compiled:
        needs = [code(guard.condition) + ("" if guard.holds else " not set") for guard in compiled]
        sentence += f"; only where it is compiled with {_listed(needs)}"
    if not (when or context or compiled or before):
        sentence += " whenever it gets there"
    if before:
        sentence += f"; by then {_listed(before)}"
    if len(site.guards) > len(guards):
        sentence += f"; {_count(len(site.guards) - len(guards), 'earlier condition')} of the function stand before that"
    return f"{sentence}."


def _subject(guard: Guard) -> str:
    """What a condition is about; empty: about several things."""
    condition = read(guard.condition, guard.holds)
    return "" if isinstance(condition, Several) else condition.subject


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _conditions(record: Record, guards: Iterable[Guard]) -> list[str]:
    conditions = [
        Atom(guard.condition, "fails" if guard.kind == "failed" else "gives None")
        if guard.kind in ("failed", "none")
        else _read(record, re.sub(r"^while\s+", "", guard.condition), guard.holds)
        for guard in guards
        if guard.kind in ("if", "elif", "early exit", "assert", "case", "while", "ternary", "else", "failed", "none")
        and guard.condition not in ("while True", "while true", "while (true)", "true", "True")
    ]
    return all_hold(conditions)


def _read(record: Record, condition: str, holds: bool) -> Condition:
    """A condition in the sense of the record's language: where only a truth value can be one, nothing is "empty"."""
    found = read(condition, holds)
    return of_truth_values(found) if record.language in _BOOLEAN else found


def _loops(guards: Iterable[Guard]) -> Iterator[str]:
    for guard in guards:
        if guard.kind == "for":
            head = re.match(r"for\s+(.+?)\s+(?:in|of)\s+(.+)$", guard.condition)
            if head:
                yield f"for each {code(head[1])} of {code(head[2])}"
            else:
                yield f"in the loop {code(guard.condition)}"


def _handlers_around(guards: Iterable[Guard]) -> Iterator[str]:
    for guard in guards:
        if guard.kind == "except":
            yield f"after {code(guard.condition)} was caught"
        elif guard.kind == "select":
            yield f"after {code(guard.condition)} was the first to go on"
        elif guard.kind == "try else":
            yield "after nothing was raised by the block before it"


def _listed(words: Sequence[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


# --- situations -------------------------------------------------------------------------------------------------------


def _situations(record: Record, told: Sequence[Told]) -> Iterator[Claim]:
    yield from _values(record)
    site = record.sites[0]
    if site.handlers == NOT_ANALYSED:
        return
    for handler in _all_handlers(record)[:_MOST_WAYS]:
        yield _claim(_handler_words(handler), [Citation(handler.path, handler.start, handler.end)])
    for link in record.wrapped_by[:_MOST_WAYS]:
        if link.reason == "wrapped by":
            yield _claim(f"It may reach the user as the cause of {code(link.type)} {_quoted(link.text)}.", [_at(site)])
    yield from _open_ways(record)
    for each in record.sites:
        if each.tests != NOT_ANALYSED:
            for test in each.tests[:2]:
                cited = [Citation(test.path, test.line, test.line)]
                yield _claim(f"The test {code(test.function or test.path)} provokes it.", cited, "test")


def _values(record: Record) -> Iterator[Claim]:
    for part in record.template:
        if isinstance(part, Hole) and part.values:
            listed = ", ".join(f"“{value}”" for value in part.values)
            yield _claim(f"{code(part.expression)} is one of {listed}.", [_at(record.sites[0])])


def _all_handlers(record: Record) -> list[Handler]:
    found: dict[tuple[str, int], Handler] = {}
    for site in record.sites:
        for handler in site.handlers if site.handlers != NOT_ANALYSED else ():
            found.setdefault((handler.path, handler.start), handler)
    return list(found.values())


_DOES = {
    "logs": "logs it and goes on",
    "warns": "warns and goes on",
    "re-raises": "raises it on",
    "wraps": "raises another error in its place",
    "returns": "returns in its place",
    "ignores": "ignores it",
    "ends the process": "ends the process",
    "answers": "answers with an error",
}


def _handler_words(handler: Handler) -> str:
    catches = " or ".join(code(type_) for type_ in handler.catches) or "whatever is raised"
    through = f", reached through {_listed([code(name) for name in handler.via[:4]])}" if handler.via else ""
    where = code(handler.function) if handler.function else code(handler.path)
    return f"{where} catches {catches}{through}, and {_DOES.get(handler.does, handler.does)}."


def _open_ways(record: Record) -> Iterator[Claim]:
    """Callers that it reaches with no handler known on the way."""
    shown: set[str] = set()
    for site in record.sites:
        if site.callers == NOT_ANALYSED:
            return
        far = [caller for caller in site.callers if caller.via]
        for caller in far or site.callers:
            if len(shown) >= _MOST_WAYS or caller.function in shown or not caller.function:
                continue
            if not caller.via and not site.function:
                continue
            shown.add(caller.function)
            through = f" through {_listed([code(name) for name in caller.via[:4]])}" if caller.via else ""
            cited = [Citation(caller.path, caller.line, caller.line)] if caller.via else [_at(site)]
            text = (
                f"{code(caller.function)} may lead to it{through}"
                if caller.via
                else f"{code(caller.function)} may call {_function(site)}"
            )
            yield _claim(f"{text}.", cited)


# --- solutions --------------------------------------------------------------------------------------------------------


def _solutions(record: Record) -> Iterator[Claim]:
    """What would keep the error away: the innermost condition turned round, the settings that it names, its cause."""
    texts: set[str] = set()
    for claim in _raw_solutions(record):
        if claim.text not in texts:
            texts.add(claim.text)
            yield claim


def _raw_solutions(record: Record) -> Iterator[Claim]:
    for site in record.sites[:_MOST_SITES_TOLD]:
        yield from _of_cause(site)
        yield from _of_settings(record, site)
        failed = {g.start for g in site.guards if g.kind in ("failed", "none")}
        deciding = [
            g
            for g in site.guards
            if g.kind in ("if", "elif", "early exit", "assert", "case", "ternary", "else")
            and not (g.start in failed and g.kind == "if")  # it asks in which way the operation failed
            and not _IS_FAILURE.match(g.condition)
            and not (_is_handed_on(record) and site.start <= g.start)  # `earlier or E(…)`: another error is no way out
        ]
        innermost = next((g for g in reversed(site.guards) if g.kind not in ("for", "cfg", "early exit")), None)
        is_failure = innermost is not None and (
            innermost.kind in ("failed", "none", "except") or innermost.start in failed
        )
        if deciding and not is_failure and record.kind not in ("log", "fatal log", "variant"):
            yield _of_guard_turned(record, site, deciding)


def _of_cause(site: Site) -> Iterator[Claim]:
    caught = next((guard for guard in reversed(site.guards) if guard.kind == "except"), None)
    if caught is None:
        return
    cited = [_of_guard(site, caught), _at(site)]
    if re.search(r"\b(?:ImportError|ModuleNotFoundError)\b", caught.condition):
        yield _claim("Install what could not be imported: the error before this one in the traceback names it.", cited)
    else:
        yield _claim(f"Mend the {code(caught.condition)} before it first: this error only follows from it.", cited)


def _of_settings(record: Record, site: Site) -> Iterator[Claim]:
    """Flags and environment variables that the message or a condition names."""
    for flag in sorted(set(_FLAG.findall(record.text)))[:3]:
        yield _claim(f"Check the flag {code(flag)}, which the message names.", [_at(site)])
    for guard in _told_guards(site):
        names = set(_ENVIRONMENT.findall(guard.condition)) if _ENVIRONMENT_LOOKUP.search(guard.condition) else set()
        for name in sorted(names):
            yield _claim(f"Check the environment variable {code(name)}, which decides here.", [_of_guard(site, guard)])


def _of_guard_turned(record: Record, site: Site, deciding: Sequence[Guard]) -> Claim:
    """The condition that decides, as it has to be for the error to stay away."""
    last = deciding[-1]
    turned = _read(record, last.condition, not last.holds)
    allowed = _allowed(deciding, turned)
    words = _choice(last) or f"Make sure that {turned.words}"
    if allowed:
        words = f"Make sure that {allowed}"
    elif isinstance(turned, Several) and turned.how == "or":
        words = words.replace("that either ", "that ")
    return _claim(f"{words}.", [_of_guard(site, guard) for guard in (deciding if allowed else [last])])


def _allowed(deciding: Sequence[Guard], turned: Condition) -> str:
    """Where several values of one thing were excluded one after the other, each of them keeps the error away."""
    if isinstance(turned, Several) or turned.verb != "is":
        return ""
    read_guards = [read(guard.condition, guard.holds) for guard in deciding]
    values = [
        condition.object
        for condition in read_guards
        if not isinstance(condition, Several) and condition.verb == "is not" and condition.subject == turned.subject
    ]
    return f"{code(turned.subject)} is {_any_of(values)}" if len(values) > 1 else ""


def _choice(guard: Guard) -> str:
    """`x not in ("a", "b")` holds: give `x` one of them."""
    match = re.fullmatch(r"([\w.]+)\s+not\s+in\s+(.+)", guard.condition, re.DOTALL)
    if match is None or not guard.holds:
        match = re.fullmatch(r"([\w.]+)\s+in\s+(.+)", guard.condition, re.DOTALL) if not guard.holds else None
    items = literal_items(match[2]) if match else []
    return f"Give {code(match[1])} one of {', '.join(items)}" if match and items else ""


# --- impact -----------------------------------------------------------------------------------------------------------

_BY_HANDLER: dict[str, Severity] = {
    "ignores": "none", "returns": "none", "logs": "warning", "warns": "warning", "answers": "error",
    "ends the process": "fatal", "wraps": "error",
}  # fmt: skip


def _impact(record: Record, told: Sequence[Told]) -> tuple[Handled | NotAnalysed, Severity | NotAnalysed, list[Claim]]:
    """Who handles it, and what it comes to: the worst of all ways that are known."""
    first = record.sites[0]
    by_kind: dict[str, tuple[Severity, str]] = {
        "exit": ("fatal", "It ends the process"), "usage": ("fatal", "The parser ends the process"),
        "fatal log": ("fatal", f"It is logged by {code(record.type)}, at a level that says fatal"),
        "log": ("error", f"It is logged by {code(record.type)}, at the level error"),
        "panic": ("fatal", "A panic ends its thread, and in the main thread the process"),
    }  # fmt: skip
    kind = "panic" if record.language == "rust" and record.kind in _PANICS else record.kind
    if kind in by_kind:
        severity, words = by_kind[kind]
        handled: Handled | NotAnalysed = "none" if first.handlers != NOT_ANALYSED else NOT_ANALYSED
        return handled, severity, [_claim(f"{words}.", [_at(first)])]
    if first.handlers == NOT_ANALYSED:
        return NOT_ANALYSED, NOT_ANALYSED, []
    handlers = [handler for handler in _all_handlers(record) if handler.does != "re-raises"]
    is_open = any(way.ends for way in told)
    is_complete = all(way.is_complete for way in told)
    handled = _handled(bool(handlers), is_open, is_complete)
    outcomes: set[Severity] = {_BY_HANDLER.get(handler.does, "error") for handler in handlers} | (
        {"error"} if is_open else set()
    )
    if not outcomes or (not is_open and not is_complete):
        outcomes.add("error")
    worst = max(outcomes, key=_SEVERITIES.index)
    deciding = [handler for handler in handlers if _BY_HANDLER.get(handler.does, "error") == worst]
    if is_open and worst == "error":
        ends = [way for each in told for way in each.ends]
        return handled, worst, [_claim(_unhandled_words(ends, is_complete), [_at(first)])]
    cited = [Citation(handler.path, handler.start, handler.end) for handler in deciding[:3]]
    if not cited:
        return handled, worst, [_claim("Who calls this function is not known here.", [_at(first)])]
    return handled, worst, [_claim(_handler_words(deciding[0]), cited)]


def _handled(is_handled: bool, is_open: bool, is_complete: bool) -> Handled:
    if is_handled:
        return "some" if is_open else "all" if is_complete else "unknown"
    return "none" if is_open and is_complete else "unknown"


def _unhandled_words(ends: Sequence[tuple[str, ...]], is_complete: bool) -> str:
    """Where it comes out."""
    outermost = list(dict.fromkeys(end[-1] for end in ends if end[-1]))
    if not outermost:
        return "No handler for it is known."
    named = _listed([code(name) for name in outermost[:3]]) + (" and others" if len(outermost) > 3 else "")
    sure = "" if is_complete else ", as far as calls could be followed"
    return f"No handler for it is known on the way out through {named}{sure}."
