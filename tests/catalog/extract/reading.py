"""Source text → sites, for tests of extraction."""

from __future__ import annotations

from windtunnel.catalog.extract import extract
from windtunnel.catalog.facts import RaiseFacts


def sites(path: str, code: str) -> tuple[RaiseFacts, ...]:
    facts = extract(path, code.encode())
    assert facts.problem is None, facts.problem
    return facts.raises


def only(path: str, code: str, *, template: bool = True) -> RaiseFacts:
    (site,) = sites(path, code)
    assert (site.template is not None) == template, site
    return site


def guards(site: RaiseFacts) -> list[tuple[str, bool, str]]:
    return [(guard.kind, guard.holds, guard.condition) for guard in site.guards]
