"""How well the gate tells an explanation of an error from one of another.

    python benchmarks/catalog/gate.py --tree FOLDER        # e.g. an unpacked vLLM wheel

Stand-ins: the explanations are those that the catalog itself derives from the code, with all their citations; none was
written by hand or by a model. A swapped one is put to another record's pack in full: its id and nonce, its type and
message in place of its own, its citations moved to the other's statement and conditions. Figures over `--records` of
the tree's raise statements, drawn by `--seed`; an explanation counts as kept when half of its claims or more are.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from windtunnel.catalog.gate.pack import Pack, make_pack
from windtunnel.catalog.gate.verdict import Verdict, check
from windtunnel.catalog.indexing import index
from windtunnel.catalog.record import Citation, Claim, Record
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Store

RESULTS = Path(__file__).parent.parent / "results"
_OPPOSITES = ((" is not ", " is "), (" is ", " is not "), ("at most", "greater than"), ("at least", "less than"))


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", required=True, type=Path)
    parser.add_argument("--records", type=int, default=150)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "catalog-gate-stand-ins.json")
    arguments = parser.parse_args()
    source = open_source(str(arguments.tree))
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "catalog.sqlite", write=True) as store:
        index(source, store, project="tree")
        every = [r for r in store.records("tree") if r.kind == "raise" and r.message_source == "message"]
        picked = random.Random(arguments.seed).sample(every, arguments.records)
        near = {record.id: _neighbour(record, every) for record in picked}
        packs = {each.id: make_pack(each, source.read, "nonce") for each in (*picked, *(n for n in near.values() if n))}
    figures = {
        "true": _figures(check(list(r.prose.claims()), packs[r.id]) for r in picked),
        "swapped between files": _figures(
            check(swapped(r, o), packs[o.id])
            for r, o in zip(picked, picked[1:] + picked[:1], strict=True)
            if r.sites[0].path != o.sites[0].path
        ),
        "swapped within a file": _figures(
            check(swapped(r, other), packs[other.id]) for r in picked if (other := near[r.id]) is not None
        ),
        "triggers turned round": _figures(
            check(turned, packs[r.id]) for r in picked if (turned := turned_round(r, packs[r.id]))
        ),
    }
    print(json.dumps(figures, indent=1))
    result = {"made": str(date.today()), "records": arguments.records, "seed": arguments.seed, "figures": figures}
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def _neighbour(record: Record, every: Iterable[Record]) -> Record | None:
    path = record.sites[0].path
    return next((r for r in every if r.sites[0].path == path and r.id != record.id), None)


def swapped(record: Record, other: Record) -> list[tuple[str, Claim]]:
    """A record's explanation, re-addressed to another one."""
    site = other.sites[0]
    cited = (Citation(site.path, site.start, site.end), *(Citation(site.path, g.start, g.end) for g in site.guards))
    return [
        (field, Claim(claim.text.replace(record.text, other.text).replace(record.type, other.type), cited, "model"))
        for field, claim in record.prose.claims()
    ]


def turned_round(record: Record, pack: Pack) -> list[tuple[str, Claim]]:
    """The trigger with its first condition negated; nothing where it has none."""
    for claim in record.prose.trigger[:1]:
        for words, opposite in _OPPOSITES:
            head, when, rest = claim.text.partition(" when ")
            if when and words in rest:
                return [("trigger", Claim(head + when + rest.replace(words, opposite, 1), claim.citations, "model"))]
    return []


def _figures(verdicts: Iterable[Verdict]) -> dict[str, object]:
    counts: Counter[str] = Counter()
    explanations = kept = 0
    for verdict in verdicts:
        counts.update(verdict.counts)
        explanations += 1
        kept += len(verdict.kept) >= max(1, (len(verdict.kept) + len(verdict.refused)) / 2)
    claims = sum(counts.values())
    return {
        "explanations": explanations, "kept_ratio": round(kept / explanations, 4) if explanations else None,
        "claims": claims, "claims_kept_ratio": round(counts["kept"] / claims, 4) if claims else None,
        "refused_by": {rule: count for rule, count in sorted(counts.items()) if rule != "kept"},
    }  # fmt: skip


if __name__ == "__main__":
    main()
