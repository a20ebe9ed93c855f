"""The rules of the gate, cheap to dear. Each takes a claim and the pack that it was made from, and says what is wrong.

| rule | refuses |
| --- | --- |
| identity | an answer that does not give back the record's id and the request's nonce: it belongs to another request |
| citation | a claim without a citation, or with one outside of the pack |
| neighbour | a claim that names the message of a record outside of this one's chain |
| symbols | a claim with an identifier, flag, variable, number or quoted text that its cited lines do not have |
| sample | code that can't be parsed, or calls what is neither in the pack nor built in |
| substance | a claim that names nothing of the code: it would fit any error |
| polarity | a trigger that cites no condition that decides, says nothing of it, or turns one round |
| trigger | all of an explanation whose triggers are wrong: who is wrong about the conditions speaks of another error |
| slice | an explanation most of whose symbols lie outside of the pack |
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable

from windtunnel.catalog.conditions import read
from windtunnel.catalog.gate.pack import Pack
from windtunnel.catalog.gate.polarity import judge
from windtunnel.catalog.record import Claim, Guard

LEAST_SLICE_RATIO = 0.6
SILENT = "it says nothing of the conditions that decide"
_LEAST_FRAGMENT = 12
_LEAST_SHARED = 2
_STEM = 4
_COMMON = frozenset(
    """
    with that this from have been only they them than when what whic ther then more most some such each othe into also
    your none name self retu rais true fals erro valu type
    """.split()  # noqa: SIM905
)
"""Beginnings of words that stand anywhere."""

_CODE = re.compile(r"`([^`]+)`")
_IDENTIFIER = re.compile(
    r"(?<![\w.])(?:[A-Za-z_][\w]*(?:(?:\.|::|->)[A-Za-z_]\w*)+|[A-Za-z]+_[\w]*|_\w+|"
    r"[A-Z][a-z0-9]+(?:[A-Z][\w]*)+|[A-Z][A-Z0-9]+_[A-Z0-9_]+)"
)
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_NUMBER = re.compile(r"(?<![\w.])\d{2,}(?:\.\d+)?(?![\w.])")
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")


def symbols_of(text: str) -> list[str]:
    """Everything in a sentence that must come from code: names, flags, variables, numbers, quoted texts."""
    plain = _CODE.sub(" ", text)
    found = [code.strip() for code in _CODE.findall(text)]
    for pattern in (_IDENTIFIER, _FLAG, _NUMBER):
        found += pattern.findall(plain)
    found += _QUOTED.findall(plain)
    return list(dict.fromkeys(symbol for symbol in found if symbol))


def citation(claim: Claim, pack: Pack) -> str | None:
    """Every citation lies in the pack, and there is one."""
    if not claim.citations:
        return "it cites nothing"
    for each in claim.citations:
        if pack.cited(each) is None:
            return f"{each.path}:{each.start}-{each.end} is not in the pack"
    return None


def neighbour(claim: Claim, others: Iterable[str]) -> str | None:
    """It quotes no message of another error. `others`: literals of records outside of the chain."""
    for literal in others:
        words = " ".join(literal.split())
        if len(words) >= _LEAST_FRAGMENT and words.lower() in claim.text.lower():
            return f"it names another error: {words!r}"
    return None


def symbols(claim: Claim, pack: Pack) -> str | None:
    """All that must come from code stands in the cited lines, or is a name, type or message on the error's way."""
    cited = "\n".join(line for each in claim.citations for line in pack.cited(each) or ())
    paths = [each.path for each in claim.citations]
    own = "\n".join((pack.type, pack.text, *pack.names, *paths))
    for symbol in symbols_of(claim.text):
        if not _occurs(symbol, cited) and not _occurs(symbol, own) and not _is_heading(symbol, pack):
            return f"{symbol!r} is not in the cited lines"
    return None


def _is_heading(symbol: str, pack: Pack) -> bool:
    """The name of the function that the lines are of: a slice of it begins with its head."""
    last = re.split(r"\.|::|->", symbol.rstrip("()"))[-1]
    heads = [each.lines[0].text for each in pack.slices if each.role == "function" and each.lines]
    return any(re.search(rf"\b{re.escape(last)}\b", head) for head in heads)


def _occurs(symbol: str, text: str) -> bool:
    if symbol in text:
        return True
    bare = symbol.strip("`'\"()").replace("…", "")
    if bare and bare in text:
        return True
    squeezed = re.sub(r"\s+", "", bare)
    if len(squeezed) > 3 and squeezed in re.sub(r"\s+", "", text):
        return True
    parts = [part for part in re.split(r"\.|::|->", bare) if part]
    return len(parts) > 1 and all(re.search(rf"\b{re.escape(part.rstrip('()'))}\b", text) for part in parts)


def sample(claim: Claim, pack: Pack) -> str | None:
    """Python that can be parsed, and calls only what there is."""
    if claim.code is None:
        return None
    try:
        tree = ast.parse(claim.code)
    except (SyntaxError, ValueError) as error:
        return f"its sample can't be parsed: {error}"
    made = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {name.asname or name.name.partition(".")[0] for node in ast.walk(tree)
             if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names}  # fmt: skip
    source = pack.source
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            known = name in made or hasattr(builtins, name) or re.search(rf"\b{re.escape(name)}\b", source)
            if name and not known:
                return f"its sample calls {name}, which is not in the pack"
    return None


def substance(claim: Claim, pack: Pack) -> str | None:
    """It names something of the code."""
    where = "\n".join((pack.source, *pack.names))
    if any(_occurs(symbol, where) for symbol in symbols_of(claim.text)):
        return None
    cited = "\n".join(line for each in claim.citations for line in pack.cited(each) or ())
    shared = _stems(claim.text) & _stems(f"{pack.text}\n{cited}")
    return None if len(shared) >= _LEAST_SHARED else "it names nothing of this error's code"


def _stems(text: str) -> set[str]:
    """The beginnings of a text's words, those within names too."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)
    return {word.lower()[:_STEM] for word in words if len(word) >= _STEM} - _COMMON


def polarity(claim: Claim, pack: Pack) -> str | None:
    """A trigger cites a condition that decides, says something of it, and turns none of those that it cites round."""
    cited = [guard for path, guard in pack.guards if _cites(claim, path, guard)]
    if pack.guards and not cited:
        return "it cites no condition"
    verdicts = [(guard, judge(claim.text, guard, pack.assigned)) for guard in cited]
    for guard, verdict in verdicts:
        if verdict == "disagrees":
            return f"{read(guard.condition, guard.holds).words} is turned round"
    deciding = pack.deciding
    if deciding and not any(verdict == "agrees" and guard in deciding for guard, verdict in verdicts):
        return SILENT
    return None


def _cites(claim: Claim, path: str, guard: Guard) -> bool:
    return any(c.path == path and c.start <= guard.end and guard.start <= c.end for c in claim.citations)


def slice_ratio(claims: Iterable[Claim], pack: Pack) -> float:
    """Share of the symbols of an explanation that lie in this error's slice of the code."""
    every = [symbol for claim in claims for symbol in symbols_of(claim.text)]
    if not every:
        return 1.0
    where = "\n".join((pack.source, pack.type, pack.text, *pack.names, *(each.path for each in pack.slices)))
    return sum(_occurs(symbol, where) for symbol in every) / len(every)
