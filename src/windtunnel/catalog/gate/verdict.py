"""Claims → those that the gate lets through, and how many each rule refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from windtunnel.catalog.gate import rules
from windtunnel.catalog.gate.pack import Pack
from windtunnel.catalog.record import Claim

Field = str
"""`meaning`, `trigger`, `situations`, `solutions`."""


class Refused(NamedTuple):
    """A claim that did not get through."""

    field: Field
    claim: Claim
    rule: str
    why: str


class Verdict(NamedTuple):
    """What the gate made of an explanation."""

    kept: tuple[tuple[Field, Claim], ...]
    refused: tuple[Refused, ...]
    slice_ratio: float

    @property
    def counts(self) -> dict[str, int]:
        """Claims that were kept, and that each rule refused."""
        return {"kept": len(self.kept), **Counter(each.rule for each in self.refused)}


def check(claims: Sequence[tuple[Field, Claim]], pack: Pack, others: Collection[str] = ()) -> Verdict:
    """Put claims to the rules. `others`: literals of messages outside of the record's chain."""
    kept: list[tuple[Field, Claim]] = []
    refused: list[Refused] = []
    for field, claim in claims:
        found = _first_fault(field, claim, pack, others)
        if found is None:
            kept.append((field, claim))
        else:
            refused.append(Refused(field, claim, *found))
    wrong = any(each.field == "trigger" and each.why != rules.SILENT for each in refused)
    if wrong and kept and not any(field == "trigger" for field, _ in kept) and pack.guards:
        # who is wrong about the conditions speaks of another error, whatever else sounds right
        refused += [Refused(field, claim, "trigger", "no trigger of its explanation holds") for field, claim in kept]
        kept = []
    ratio = rules.slice_ratio([claim for _, claim in claims], pack)
    if kept and ratio < rules.LEAST_SLICE_RATIO:
        why = f"{ratio:.0%} of its symbols lie in this error's slice"
        refused += [Refused(field, claim, "slice", why) for field, claim in kept]
        kept = []
    return Verdict(tuple(kept), tuple(refused), ratio)


def _first_fault(field: Field, claim: Claim, pack: Pack, others: Collection[str]) -> tuple[str, str] | None:
    rule: Callable[[Claim, Pack], str | None]
    for rule in (rules.citation, partial(_neighbour, others), rules.symbols, rules.sample, rules.substance):
        if (why := rule(claim, pack)) is not None:
            return _name(rule), why
    if field == "trigger" and (why := rules.polarity(claim, pack)) is not None:
        return "polarity", why
    return None


def _neighbour(others: Collection[str], claim: Claim, pack: Pack) -> str | None:
    return rules.neighbour(claim, others)


def _name(rule: Callable[..., object]) -> str:
    return "neighbour" if isinstance(rule, partial) else rule.__name__
