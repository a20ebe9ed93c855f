"""How well the gate tells an explanation of an error from one of another.

    python benchmarks/catalog/gate.py --tree FOLDER        # vLLM 0.33.0, as its wheel unpacks

`explanations.jsonl` has explanations of 150 of vLLM's errors, two from each of 75 files, written by hand from the code:
sentences, each with the lines that bear it out. 30 of them were held back while the rules were tuned.

Each is put to the gate as it is, and swapped: re-addressed in full to another record, whose id and nonce, type and
message it gets, and its citations are moved to the lines that play their part there: statement to statement, condition
to condition, comment to comment. And triggers are turned round: the first word of theirs that has an opposite is
replaced by that. An explanation counts as kept when half of its claims or more are.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from overhead import machine
from windtunnel import __version__
from windtunnel.catalog.gate.pack import Pack, make_pack
from windtunnel.catalog.gate.verdict import Verdict, check
from windtunnel.catalog.indexing import index
from windtunnel.catalog.record import Citation, Claim, Record
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Store

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
SWAPS_EACH = 4
"""Records of other files that each explanation is put to."""
SEED = 3
OPPOSITES = (
    ("is neither", "is either"), ("Neither", "Either"), ("neither", "either"), ("is none of", "is one of"),
    ("are both None", "are both given"), ("is not None", "is None"), ("is None", "is not None"),
    ("is not in", "is in"), ("does not contain", "contains"), ("does not have", "has"), ("is not", "is"),
    ("is given", "is not given"), ("is set", "is not set"), ("is true", "is false"), ("is false", "is true"),
    ("is empty", "is not empty"), ("greater than", "at most"), ("exceeds", "is below"), ("less than", "at least"),
    ("at most", "more than"), ("at least", "less than"), ("more than", "at most"), ("differs from", "equals"),
    ("differ from", "equal"), ("raises", "does not raise"), ("is already in", "is not in"),
    ("contains", "does not contain"),
    ("has no", "has"), ("lacks", "has"), ("returns false", "returns true"), ("gives None", "gives a value"),
    ("returns None", "returns a value"), (" is in ", " is not in "), (" is 0", " is not 0"), (" is ", " is not "),
    (" has ", " has not "),
)  # fmt: skip

Fields = list[tuple[str, Claim]]


class Explained(NamedTuple):
    """An explanation and the record that it is of."""

    record: Record
    claims: Fields
    held_out: bool


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", required=True, type=Path)
    parser.add_argument("--show", action="store_true", help="show what the gate got wrong among those not held back")
    parser.add_argument("--store", type=Path, help="keep the index there; default: nowhere")
    parser.add_argument("--out", type=Path, default=RESULTS / "catalog-gate.json")
    options = parser.parse_args()
    source = open_source(str(options.tree))
    with tempfile.TemporaryDirectory() as folder:
        with Store.open(options.store or Path(folder) / "catalog.sqlite", write=True) as store:
            index(source, store, project="vllm")
            explained = read_explanations(store)
        packs = {each.record.id: make_pack(each.record, source.read, "nonce") for each in explained}
    result: dict[str, Any] = {
        "benchmark": "catalog gate", "made": str(date.today()), "machine": machine.facts(),
        "revision": machine.revision(), "windtunnel": __version__, "tree": "vllm 0.33.0", "seed": SEED,
    }  # fmt: skip
    for name, part in (
        ("tuned on", [each for each in explained if not each.held_out]),
        ("held out", [each for each in explained if each.held_out]),
    ):
        figures = measured(part, explained, packs, show=options.show and name == "tuned on")
        result[name] = figures
        print(f"{name}: {len(part)} explanations, {sum(len(each.claims) for each in part)} claims")
        for case, found in figures.items():
            print(f"  {case:26} kept {found['kept_ratio']:7.2%}   claims {found['claims_kept_ratio']:7.2%}   ", end="")
            print(", ".join(f"{rule} {count}" for rule, count in found["refused_by"].items()))
    options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def read_explanations(store: Store) -> list[Explained]:
    """Those of the file, with their records."""
    at = {(site.path, site.start): record for record in store.records("vllm") for site in record.sites}
    found = []
    for line in (HERE / "explanations.jsonl").read_text("utf-8").splitlines():
        told = json.loads(line)
        record = at[told["path"], told["line"]]
        claims = [
            (field, Claim(text, _citations(cited, told["path"]), "person")) for field, text, cited in told["claims"]
        ]
        found.append(Explained(record, claims, told["held_out"]))
    return found


def _citations(cited: Iterable[Sequence[Any]], path: str) -> tuple[Citation, ...]:
    """`[start, end]` in the record's own file, `[path, start, end]` in another."""
    return tuple(Citation(*each) if len(each) == 3 else Citation(path, *each) for each in cited)


def measured(
    part: Sequence[Explained], every: Sequence[Explained], packs: dict[str, Pack], *, show: bool
) -> dict[str, Any]:
    """The figures of some explanations, swapped with any."""
    rng = random.Random(SEED)
    far = [
        (each, other)
        for each in part
        for other in rng.sample([o for o in every if _path(o) != _path(each)], SWAPS_EACH)
    ]
    near = [(each, other) for each in part for other in every if _path(other) == _path(each) and other is not each]
    cases: dict[str, list[tuple[Explained, Verdict]]] = {
        "true": [(each, check(each.claims, packs[each.record.id])) for each in part],
        "swapped between files": [
            (each, check(swapped(each, other, packs), packs[other.record.id])) for each, other in far
        ],
        "swapped within a file": [
            (each, check(swapped(each, other, packs), packs[other.record.id])) for each, other in near
        ],
        "triggers turned round": [
            (each, check(turned, packs[each.record.id])) for each in part if (turned := turned_round(each.claims))
        ],
    }  # fmt: skip
    if show:
        _show(cases)
    return {name: _figures([verdict for _, verdict in verdicts]) for name, verdicts in cases.items()}


def _path(each: Explained) -> str:
    return each.record.sites[0].path


def swapped(each: Explained, other: Explained, packs: dict[str, Pack]) -> Fields:
    """An explanation, re-addressed to the record of another one."""
    one, two = each.record, other.record
    pack = packs[two.id]
    names = [(one.text, two.text), (one.type, two.type)]
    moved = []
    for field, claim in each.claims:
        text = claim.text
        for old, new in names:
            text = text.replace(old, new)
        cited = tuple(dict.fromkeys(place for c in claim.citations for place in _counterparts(c, one, two, pack)))
        moved.append((field, Claim(text, cited, "model", claim.code)))
    return moved


def _counterparts(cited: Citation, one: Record, two: Record, pack: Pack) -> list[Citation]:
    """The lines that play the part of the cited ones in another record."""
    mine, theirs = one.sites[0], two.sites[0]
    statement = Citation(theirs.path, theirs.start, theirs.end)
    found = []
    if any(cited.path == mine.path and g.start <= cited.end and cited.start <= g.end for g in mine.guards):
        found += [Citation(theirs.path, guard.start, guard.end) for guard in theirs.guards]
    if any(doc.path == cited.path and doc.start <= cited.end and cited.start <= doc.end for doc in mine.docs):
        found += [Citation(doc.path, doc.start, doc.end) for doc in theirs.docs]
    if cited.path != mine.path:
        found += [Citation(s.path, s.lines[0].number, s.lines[-1].number) for s in pack.slices[1:2] if s.lines]
    if not found or (cited.path == mine.path and cited.start <= mine.end and mine.start <= cited.end):
        found.append(statement)
    return found


def turned_round(claims: Fields) -> Fields:
    """The first trigger with its first condition negated; nothing where no word of it has an opposite."""
    for field, claim in claims:
        if field != "trigger":
            continue
        places = [
            (match.start(), words, opposite)
            for words, opposite in OPPOSITES
            if (match := re.search(rf"(?<!\w){re.escape(words)}(?!\w)", claim.text))
        ]
        if places:
            start, words, opposite = min(places, key=lambda place: (place[0], -len(place[1])))
            text = claim.text[:start] + opposite + claim.text[start + len(words) :]
            text = text.replace(" nor ", " or ") if "either" in words else text
            return [("trigger", Claim(text, claim.citations, "model"))]
    return []


def _kept(verdict: Verdict) -> bool:
    return len(verdict.kept) >= max(1, (len(verdict.kept) + len(verdict.refused)) / 2)


def _figures(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for verdict in verdicts:
        counts.update(verdict.counts)
    claims = sum(counts.values())
    return {
        "explanations": len(verdicts), "kept_ratio": round(sum(map(_kept, verdicts)) / len(verdicts), 4),
        "claims": claims, "claims_kept_ratio": round(counts["kept"] / claims, 4),
        "refused_by": {rule: count for rule, count in sorted(counts.items()) if rule != "kept"},
    }  # fmt: skip


def _show(cases: dict[str, list[tuple[Explained, Verdict]]]) -> None:
    for each, verdict in cases["true"]:
        for refused in verdict.refused:
            print(
                f"true, refused by {refused.rule}: {_path(each)}:{each.record.sites[0].start}\n    {refused.claim.text}"
            )
            print(f"    {refused.why}")
    for name in list(cases)[1:]:
        for each, verdict in cases[name]:
            if _kept(verdict):
                print(f"{name}, kept: {_path(each)}:{each.record.sites[0].start}")
                for field, claim in verdict.kept:
                    print(f"    {field}: {claim.text}  {[(c.start, c.end) for c in claim.citations]}")


if __name__ == "__main__":
    main()
