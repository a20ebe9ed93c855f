"""Kills and stops at random moments of a rebalance: how soon it is over, and whether anything was ever wrong.

    python benchmarks/eplb/deaths.py --transport shm --deaths 1000
    python benchmarks/eplb/deaths.py --transport nixl --deaths 200

A fleet of real processes moves experts while each rank reads and checks what it serves, byte for byte. Ranks, two at
once at times, and the coordinator are killed (SIGKILL) or stopped (SIGSTOP) in the middle of it. After each, the ranks
that are left must serve one epoch with all experts; then the victims come back. What is done in which round follows
from the seed and the round's number. Rounds are appended to a file as they end, and a second run goes on there; a round
in which anything was wrong stands there too. Where the shell that began it may end before, begin it with setsid: the
kernel continues the stopped processes of a group that loses its shell.

Figures, from the signal, on the clock that all processes share:

| figure | until |
| --- | --- |
| noticed | the coordinator knows that the rank is lost |
| confirmed | what was under way is rolled back, or finished without the rank; the old epoch, or the new one, serves |
| evicted | an epoch is published that routes around the rank |
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.eplb.live.actor import Model
from tests.eplb.live.fleet import Fleet

from overhead import machine
from overhead.comparison import Spread, aligned

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS_PER_FLEET = 50
HANG_S = 1.0
FIGURES = ("noticed_s", "confirmed_s", "evicted_s")


def main() -> None:
    options = _options()
    journal = options.journal or Path(f"deaths-{options.transport}-{options.seed}.jsonl")
    done = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    if done:
        print(f"{len(done)} rounds are in {journal}: going on")
    with journal.open("a") as file:
        while sum(len(round_["victims"]) for round_ in done) < options.deaths:
            for told in _rounds(options, len(done)):
                file.write(json.dumps(told) + "\n")
                file.flush()
                done.append(told)
                if sum(len(round_["victims"]) for round_ in done) >= options.deaths:
                    break
            print(f"{sum(len(round_['victims']) for round_ in done)} of {options.deaths} deaths", flush=True)
    _report(options, done)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("shm", "nixl"), default="shm")
    parser.add_argument("--deaths", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--journal", type=Path, metavar="FILE", help="default: deaths-TRANSPORT-SEED.jsonl, here")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: benchmarks/results/eplb-deaths-….json")
    return parser.parse_args()


def _rounds(options: argparse.Namespace, first: int) -> Iterator[dict[str, Any]]:
    """Rounds with one fleet. An assertion that fails, and a wait that doesn't end, is a violated invariant."""
    model = Model(4, 8, (5, 5, 5, 5), floats=1 << 15, transport=options.transport, hang_s=HANG_S)
    with Fleet(model) as fleet:
        for number in range(first, first + ROUNDS_PER_FLEET):
            try:
                yield _one_round(fleet, random.Random(f"{options.seed} {number}"), number)
            except (AssertionError, TimeoutError, EOFError) as error:
                print(f"round {number}: {error!r}\n{fleet.describe()}", file=sys.stderr)
                yield {"round": number, "victims": [], "how": "", "violated": repr(error)}
                return  # the next round begins with a new fleet


def _one_round(fleet: Fleet, rng: random.Random, number: int) -> dict[str, Any]:
    ranks = list(range(len(fleet.model.slots_per_rank)))
    victims: list[Any] = rng.choice([[rng.choice(ranks)]] * 6 + [rng.sample(ranks, 2), ["coordinator"]])
    how = rng.choice(["kill", "stop"])
    delay_s = rng.uniform(0, 0.05)
    fleet.ask(("begin", rng.randrange(1 << 30)))
    time.sleep(delay_s)  # not for something to happen: the moment is what is drawn
    since_ns = time.monotonic_ns()
    told = {"round": number, "victims": victims, "how": how, "delay_ms": delay_s * 1e3}
    if victims == ["coordinator"]:
        _replace_coordinator(fleet, how)
        fleet.settled(set(ranks))
        return told | {"epoch": fleet.state()["epoch"]}
    for rank in victims:
        fleet.ranks[rank].signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    fleet.until(lambda: not set(victims) & set(fleet.state()["live"]), "the victims are evicted")
    fleet.settled(set(ranks) - set(victims))
    told |= _figures(fleet, victims, since_ns)
    for rank in victims:
        if how == "stop":
            fleet.go_on(rank)
        else:
            fleet.ranks[rank].end()
            fleet.start_rank(rank, empty=rng.random() < 0.5)
            fleet.await_ranks(rank)
    fleet.until(lambda: set(fleet.state()["live"]) == set(ranks), "the victims are back")
    fleet.settled(set(ranks))
    return told | {"epoch": fleet.state()["epoch"]}


def _replace_coordinator(fleet: Fleet, how: str) -> None:
    assert fleet.coordinator
    if how == "stop":
        slots = fleet.state()["slots"]
        fleet.coordinator.signal(signal.SIGSTOP)
        for rank in fleet.ranks:
            if (slots[:, rank] >= 0).any():  # one that has just come back may have nothing to read yet
                fleet.check(rank)
        fleet.coordinator.signal(signal.SIGCONT)
        return
    fleet.coordinator.signal(signal.SIGKILL)
    fleet.coordinator.end()
    fleet.start_coordinator()
    fleet.ask("ready")


def _figures(fleet: Fleet, victims: list[int], since_ns: int) -> dict[str, float]:
    """Seconds from the signal, of the slowest victim."""
    events = [event for event in fleet.state()["events"] if event[0] >= since_ns]
    lost = [at_ns for at_ns, what, facts in events if what == "lost" and facts["rank"] in victims]
    assert len(lost) == len(victims)
    evicted = [at_ns for at_ns, what, facts in events if what == "evicted" and set(facts["ranks"]) & set(victims)]
    ended = [at_ns for at_ns, what, _ in events if what in ("rolled back", "committed") and at_ns >= max(lost)]
    found = {"noticed_s": max(lost), "confirmed_s": min(ended, default=max(lost)), "evicted_s": max(evicted, default=0)}
    return {name: (at_ns - since_ns) / 1e9 for name, at_ns in found.items() if at_ns}


def _report(options: argparse.Namespace, done: list[dict[str, Any]]) -> None:
    table = [["", "rounds", *(f"{name.removesuffix('_s')}, s" for name in FIGURES)]]
    for how in ("kill", "stop"):
        rounds = [told for told in done if told["how"] == how and told["victims"] != ["coordinator"]]
        table.append([how, str(len(rounds)), *(str(Spread.of([t[f] for t in rounds if f in t])) for f in FIGURES)])
    coordinators = sum(told["victims"] == ["coordinator"] for told in done)
    violated = [told for told in done if "violated" in told]
    print(aligned(table))
    print(f"median (least–greatest); a stop is noticed after {HANG_S:g} s of silence, by configuration")
    print(f"{coordinators} rounds hit the coordinator; an invariant was violated in {len(violated)}")
    document = {
        "benchmark": "eplb deaths",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine.facts(),
        "revision": machine.revision(),
        "transport": options.transport,
        "seed": options.seed,
        "hang_s": HANG_S,
        "deaths": sum(len(told["victims"]) for told in done),
        "violations": len(violated),
        "rounds": done,
    }
    out = options.out or RESULTS / time.strftime(f"eplb-deaths-{options.transport}-%Y%m%d-%H%M%S.json")
    out.write_text(json.dumps(document) + "\n")
    print(f"saved in {out}")


if __name__ == "__main__":
    main()
