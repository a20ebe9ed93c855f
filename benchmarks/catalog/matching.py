"""How fast are errors found: in a log, and one at a time?

    python benchmarks/catalog/matching.py --source FOLDER            # a source tree with many errors: vLLM's, unpacked
    python benchmarks/catalog/matching.py --store catalog.sqlite     # what is indexed already

The log: one line in a hundred is an error, rendered from a record of the catalog; the others are rendered from the
tree's own calls of `logger.info`, `.debug` and `.warning`, so they have the words of its errors. Each line has a prefix
as vLLM's logger writes it. Lines per CPU second of this process, of several rounds on the same log; building the
automaton is measured apart. "hard" is a log whose errors are drawn from all records, so nearly each one is new and is
looked at closely; those of the other one are drawn from --different of them, each with new values.

One at a time: messages, and tracebacks of two frames, of records drawn at random, and lines of the log that are no
errors. Milliseconds on the wall of one look-up in an open store, the first ones left out.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, this file's own folder would be the first

from overhead import machine
from windtunnel.catalog.indexing import index
from windtunnel.catalog.match.look_up import explain
from windtunnel.catalog.match.scan import Scanner
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Matchable, Store
from windtunnel.catalog.template import num_literal_characters

RESULTS = Path(__file__).parents[1] / "results"
_BLOCK_BYTES = 1 << 20
_FILLINGS = ("5", "0.93", "qwen/Qwen3-8B", "/data/models/x", "torch.bfloat16", "EngineCore_0", "[1, 2, 3]", "'cuda:0'")
_LOGGED = frozenset({"info", "debug", "warning"})
_FORMAT = re.compile(r"%(?:\(\w+\))?[-#0 +]*\d*(?:\.\d+)?[sdrfx]")
_LEAST_CHARACTERS = 10


def benign_templates(folder: Path) -> list[str]:
    """Formats of the tree's calls that log no error, with `{}` for holes."""
    found: set[str] = set()
    for path in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOGGED:
                text = _text_of(node.args[0]) if node.args else None
                if text and len(text) >= _LEAST_CHARACTERS:
                    found.add(" ".join(text.split()))
    return sorted(found)


def _text_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _FORMAT.sub("{}", node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
        return "".join(str(part) for part in parts)
    return None


def rendered(matchable: Matchable, rng: random.Random) -> str:
    """A message that the record's statement could make."""
    text = "".join(part if isinstance(part, str) else _filling(part.format, rng) for part in matchable.template)
    return " ".join(text.split())


def _filling(format_: str, rng: random.Random) -> str:
    return str(rng.randrange(1000)) if re.search(r"[dxfeg%]$", format_) else rng.choice(_FILLINGS)


def log_lines(num: int, errors: list[Matchable], benign: list[str], rng: random.Random) -> Iterator[str]:
    """One line in a hundred is an error."""
    for number in range(num):
        is_error = number % 100 == 50
        text = rendered(rng.choice(errors), rng) if is_error else rng.choice(benign)
        while "{}" in text:
            text = text.replace("{}", rng.choice(_FILLINGS), 1)
        level = "ERROR" if is_error else "INFO"
        clock = f"12:{number // 60 % 60:02}:{number % 60:02}"
        yield f"(EngineCore_DP0 pid=4242) {level} 11-30 {clock} [core.py:{rng.randrange(900)}] {text}"


def scanned(store: Store, log: bytes) -> dict[str, Any]:
    """One pass over a log."""
    began = time.process_time()
    scanner = Scanner(store)
    built = time.process_time()
    for start in range(0, len(log), _BLOCK_BYTES):
        scanner.feed(log[start : start + _BLOCK_BYTES])
    scanner.settle()
    ended = time.process_time()
    known = [s for s in scanner.sightings.values() if s.chain[0].candidates]
    return {
        "build_cpu_s": round(built - began, 3),
        "lines_per_cpu_s": round(scanner.num_lines / (ended - built)),
        "num_different": len(scanner.sightings),
        "num_known_lines": sum(s.num_times for s in known),
    }


def one_at_a_time(store: Store, texts: list[str]) -> dict[str, float]:
    """Milliseconds of a look-up."""
    spent: list[float] = []
    for text in texts:
        began = time.perf_counter()
        explain(text, store)
        spent.append((time.perf_counter() - began) * 1000)
    spent = spent[len(spent) // 10 :]
    cuts = quantiles(spent, n=100)
    return {"median_ms": round(median(spent), 2), "p95_ms": round(cuts[94], 2), "p99_ms": round(cuts[98], 2)}


def traceback_of(matchable: Matchable, message: str) -> str:
    """As Python prints it, with a caller above."""
    path, start, _, function = matchable.places[0]
    name = function.rpartition(".")[2] or "<module>"
    frames = f'  File "/app/main.py", line 1, in <module>\n    main()\n  File "/app/{path}", line {start}, in {name}\n'
    return f"Traceback (most recent call last):\n{frames}    raise {matchable.type}(...)\n{matchable.type}: {message}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="the tree that benign lines come from, and errors")
    parser.add_argument("--store", type=Path, help="a catalog that has it already")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--different", type=int, default=500, help="records that the log's errors are of")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = options.store or Path(folder) / "catalog.sqlite"
        if options.store is None:
            with Store.open(path, write=True) as store:
                index(open_source(str(options.source)), store)
        with Store.open(path) as store:
            result = _measured(store, options, rng)
    print(json.dumps(result, indent=2))
    out = options.output or RESULTS / time.strftime("catalog-matching-%Y%m%d-%H%M%S.json")
    out.write_text(json.dumps(result, indent=2) + "\n")


def _measured(store: Store, options: argparse.Namespace, rng: random.Random) -> dict[str, Any]:
    records = list(store.matchables())
    says = [
        r for r in records if r.message_source == "message" and num_literal_characters(r.template) >= _LEAST_CHARACTERS
    ]
    raised = [r for r in says if r.kind == "raise"]
    benign = benign_templates(options.source)
    log, hard = (
        "".join(f"{line}\n" for line in log_lines(options.lines, errors, benign, rng)).encode()
        for errors in (rng.sample(says, options.different), says)
    )
    rounds = [scanned(store, log) for _ in range(options.rounds)]
    drawn = [rng.choice(raised) for _ in range(400)]
    messages = [rendered(record, rng) for record in drawn]
    return {
        "benchmark": "catalog-matching",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "revision": machine.revision(),
        "seed": options.seed,
        "num_records": len(records),
        "num_templates": len(says),
        "num_benign_templates": len(benign),
        "log": {
            "num_lines": options.lines,
            "num_bytes": len(log),
            "num_error_lines": options.lines // 100,
            "lines_per_cpu_s": median(each["lines_per_cpu_s"] for each in rounds),
            "rounds": rounds,
            "hard": scanned(store, hard),
        },
        "one_at_a_time": {
            "message": one_at_a_time(store, messages),
            "traceback": one_at_a_time(store, [traceback_of(r, m) for r, m in zip(drawn, messages, strict=True)]),
            "no error": one_at_a_time(store, [rng.choice(benign) for _ in range(400)]),
        },
    }


if __name__ == "__main__":
    main()
