"""How long do the catalog's pages take? Over loopback, from a server in a process of its own.

    python benchmarks/catalog/pages.py --store vllm.sqlite --project vllm

The store is made by `windtunnel catalog index`. Each address is asked once after the start (`first_ms`), then in
rounds; a round asks all addresses once, over one connection. Records and words are drawn from the store with a seed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from windtunnel.catalog.store import Hit, Project, Store

RESULTS = Path(__file__).parents[1] / "results"
GOAL_MS = 50.0
COMMAND = (sys.executable, "-m", "windtunnel", "catalog", "serve", "--port", "0")
NUM_DRAWN = 20
_COLUMNS = ("least_ms", "median_ms", "p99_ms", "first_ms")


def main() -> None:
    options = _options()
    with Store.open(options.store) as store:
        project = store.project(options.project)
        hits = store.hits(project.name)
        most_sites = max(hits, key=lambda hit: len(store.record(hit.id).sites))
    asked = _addresses(project, hits, most_sites, random.Random(options.seed))
    command = [*COMMAND, "--store", str(options.store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match is not None
        try:
            figures = _measured(urlsplit(match[0]).netloc, asked, options.rounds)
        finally:
            process.terminate()
    for name, figure in figures.items():
        print(f"{name:24}" + "".join(f"{figure[each]:10.1f}" for each in _COLUMNS))
    print(" " * 24 + "".join(f"{each:>10}" for each in _COLUMNS))
    out = options.out or RESULTS / time.strftime("catalog-pages-%Y%m%d-%H%M%S.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(_document(options, project, figures), indent=1) + "\n")
    print(out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--project", required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


Asked = tuple[str, bytes | None]


def _addresses(project: Project, hits: list[Hit], most_sites: Hit, chance: random.Random) -> dict[str, list[Asked]]:
    """What each figure asks for: addresses, with a form where it is posted."""
    name = quote(project.name, safe="")
    drawn = chance.sample(hits, min(NUM_DRAWN, len(hits)))
    top = hits[0].path.partition("/")[0]
    num_pages = len(hits) // 50
    messages = [re.sub(r"\{[^}]*\}", "7", hit.text)[:300] for hit in drawn]
    return {
        "home": [("/", None)],
        "search": [(f"/search?{urlencode({'q': message[:60]})}", None) for message in messages],
        "project": [(f"/projects/{name}", None)],
        "project, a later page": [(f"/projects/{name}?page={chance.randint(1, num_pages)}", None) for _ in drawn],
        "project, filtered": [(f"/projects/{name}?severity=error&kind=raise&under={quote(top)}", None)],
        "record": [(f"/errors/{hit.id}", None) for hit in drawn],
        "record of most places": [(f"/errors/{most_sites.id}", None)],
        "record as JSON": [(f"/api/errors/{hit.id}", None) for hit in drawn],
        "explain, a message": [("/explain", urlencode({"text": message}).encode()) for message in messages],
    }


def _measured(netloc: str, asked: dict[str, list[Asked]], rounds: int) -> dict[str, dict[str, float]]:
    connection = HTTPConnection(netloc, timeout=60)
    firsts = {name: _ask_ms(connection, each[0]) for name, each in asked.items()}
    taken: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(rounds):
        for name, each in asked.items():
            taken[name].append(_ask_ms(connection, each[number % len(each)]))
    connection.close()
    return {
        name: {
            "least_ms": round(min(times), 2),
            "median_ms": round(statistics.median(times), 2),
            "p99_ms": round(statistics.quantiles(times, n=100)[98], 2),
            "most_ms": round(max(times), 2),
            "first_ms": round(firsts[name], 2),
        }
        for name, times in taken.items()
    }


def _ask_ms(connection: HTTPConnection, asked: Asked) -> float:
    path, form = asked
    headers = {"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}
    start_ns = time.perf_counter_ns()
    connection.request("GET" if form is None else "POST", path, form, headers)
    response = connection.getresponse()
    response.read()
    taken_ms = (time.perf_counter_ns() - start_ns) / 1e6
    assert response.status == 200, (response.status, path)
    return taken_ms


def _document(options: argparse.Namespace, project: Project, figures: dict[str, dict[str, float]]) -> dict[str, object]:
    return {
        "benchmark": "catalog/pages",
        "goal_ms": GOAL_MS,
        "rounds": options.rounds,
        "seed": options.seed,
        "project": {"name": project.name, "version": project.version, "num_records": project.num_records},
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "load_average": os.getloadavg()},
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("windtunnel", "starlette", "uvicorn", "jinja2", "msgspec")},
        },
        "figures": figures,
    }


if __name__ == "__main__":
    main()
