"""The flags that `windtunnel eplb plan` and `windtunnel eplb replay` share, and what they say of ranks and limits."""

from __future__ import annotations

import argparse
import re
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.values import LIST, NAME, PATH, POSITIVE, SHARE, SWITCH, Kind
from windtunnel.errors import ConfigurationError, EplbInputError, FileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windtunnel.eplb.placement import Placement
    from windtunnel.eplb.planning import Planner
    from windtunnel.eplb.policies import Budget, Constraints, Load
    from windtunnel.eplb.topology import Topology

GROUPS = {
    "where": "the ranks, and what stands on them now",
    "how": "the policy, and what it has to keep to",
    "output": "what is printed and saved",
}
WHERE, HOW, OUTPUT = GROUPS

POLICIES = ("windtunnel", "deepseek", "deepseek-flat")
_SIZE_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}
_MOST = 1_000_000
COMPILING = "compiling the policy, once for this installation; about 20 s"
_Read = TypeVar("_Read")
_SIZE = re.compile(r"\s*([0-9]{0,15}\.?[0-9]{1,15})\s*([a-z]*)\s*", re.IGNORECASE)


def _read_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _SIZE_UNITS:
        raise ArgumentTypeError(f"{text!r} is not a size")
    return round(float(match[1]) * _SIZE_UNITS[match[2].lower()])


def _read_number(text: str) -> int:
    value = int(POSITIVE.read(text))
    if value > _MOST:
        raise ArgumentTypeError(f"{text} is above {_MOST}")
    return value


def _read_pinned(text: str) -> tuple[int, tuple[int, ...]]:
    expert, colon, ranks = text.partition(":")
    try:
        if colon:
            return int(expert), tuple(int(rank) for rank in ranks.split(","))
    except ValueError:
        pass
    raise ArgumentTypeError(f"{text!r} is no expert with its ranks")


NUMBER = Kind("N", f"a whole number from 1 to {_MOST}", _read_number)
SIZE = Kind("BYTES", "a number of bytes, or 42MiB, 44MB", _read_size)
PINNED = Kind("EXPERT:RANK,…", "an expert, and the ranks that it must be on: 7:0,16", _read_pinned)

WHERE_FLAGS = (
    Flag("--previous", WHERE, PATH, None, "The placement that is in place, an npz file.", OURS),
    Flag("--ranks", WHERE, NUMBER, None, "Number of ranks. Without it: as --slots-per-rank or --previous say.", OURS),
    Flag(
        "--nodes", WHERE, NUMBER, 1, "Number of nodes that the ranks stand on, in order; the first ones get one more "
        "where the ranks do not divide.", OURS,
    ),
    Flag("--slots", WHERE, NUMBER, None, "Slots of all ranks together in one layer. Without it: --previous's.", OURS),
    Flag(
        "--slots-per-rank", WHERE, LIST, None, "Slots of each rank, where they differ: 9,9,8,… Instead of --slots.",
        OURS,
    ),
    Flag("--dead-ranks", WHERE, LIST, None, "Ranks that are dead, counted from 0: nothing is put there.", OURS),
)  # fmt: skip

LIMIT_FLAGS = (
    Flag(
        "--split", HOW, NAME, "even", "How an expert's tokens are split over its replicas: even is what engines route "
        "today, weighted the best split there is for the load that is planned for.", OURS,
        choices=("even", "weighted"),
    ),
    Flag("--min-replicas", HOW, NUMBER, 1, "Replicas that each expert has at least, on ranks or nodes apart.", OURS),
    Flag("--spread", HOW, NAME, "rank", "What --min-replicas are kept apart by.", OURS, choices=("rank", "node")),
    Flag("--pinned", HOW, PINNED, None, "Experts that must be on certain ranks, in every layer.", OURS, nargs="+"),
    Flag(
        "--groups", HOW, NUMBER, 1, "Expert groups of the model's router. They count only with --keep-groups; "
        "else the share of tokens that leave their group's node is told. The policy deepseek always keeps them.", OURS,
    ),
    Flag("--keep-groups", HOW, SWITCH, False, "Keep all replicas of an expert group on one node.", OURS),
    Flag(
        "--tolerance", HOW, SHARE, None, "Stop where the hottest rank is so near to the best possible, e.g. 0.01; "
        "lower balances better and moves more. Without it: as the policy sees fit.", OURS,
    ),
    Flag("--max-moved-ratio", HOW, SHARE, None, "Copies between ranks are at most this share of all slots.", OURS),
    Flag(
        "--expert-bytes", HOW, SIZE, None, "Size of one expert of one layer, all its tensors: 42MiB. Bytes are told "
        "then; by plan also the time on the wires, where a rank is assumed to send, and at the same time receive, "
        "100 GB/s within a node, 25 GB/s between nodes and 1 GB/s from the weight source.", OURS,
    ),
    Flag("--bytes-per-rank", HOW, SIZE, None, "A rank receives at most so many bytes. Wants --expert-bytes.", OURS),
    Flag(
        "--full-replan", HOW, NAME, "auto", "Start over instead of going on from what is in place; auto: where that "
        "balances better. Alone: always.", OURS, nargs="?", choices=("auto", "always", "never"), bare="always",
    ),
)  # fmt: skip

_FULL_REPLAN = {"auto": None, "always": True, "never": False}


def read_file(flag: str, path: str | None, read: Callable[[Path], _Read]) -> _Read:
    """What `read` makes of the file; raises ConfigurationError where it can't be read, and what `read` raises."""
    if path is None:
        raise ConfigurationError(flag, "is missing", "Name the npz file of the recorded load.")
    with _naming(flag):
        return read(Path(path))


def previous_of(values: argparse.Namespace, load: NDArray[Any]) -> Placement | None:
    """The placement that is in place, for a load [steps, layers, experts]; raises as `read_file` does."""
    from windtunnel.eplb.files import read_placement

    if values.previous is None:
        return None
    return read_file("--previous", values.previous, lambda path: read_placement(path, load.shape[2]))


def prove_writable(flag: str, path: str | None, *read_from: str | None) -> None:
    """Before any work is done. Raises ConfigurationError, also where the file is one of those that are `read_from`."""
    if path is None:
        return
    from windtunnel.eplb.files import require_writable

    for other in read_from:
        if other is not None and Path(path).exists() and Path(path).samefile(other):
            raise ConfigurationError(flag, f"{path} is the recorded load, which would be lost", "Name another file.")
    with _naming(flag):
        require_writable(Path(path))


def warm_up(planner: Planner, load: Load, topology: Topology, committed: Placement | None) -> None:
    """Compile what the policy needs, so that it is not taken for the time of a plan; tell whoever waits for it."""
    with _telling_of_compilation():
        planner.warm_up(load, topology, committed)


@contextmanager
def _telling_of_compilation() -> Iterator[None]:
    """A note as soon as anything is really compiled; what comes from the cache of an earlier time makes none."""
    from numba.core import event

    class Note(event.Listener):
        is_told = False

        def on_start(self, _: object) -> None:
            if not self.is_told:
                tell_note(COMPILING)
            self.is_told = True

        def on_end(self, _: object) -> None:
            pass

    with event.install_listener("numba:compile", Note()):
        yield


@contextmanager
def naming_flags(flags: Sequence[Flag]) -> Iterator[None]:
    """Let an EplbInputError about a field name the flag that the user wrote."""
    written = {flag.key: flag.name for flag in flags} | {
        "num_groups": "--groups",
        "moved_ratio": "--max-moved-ratio",
    }
    try:
        yield
    except EplbInputError as error:
        raise EplbInputError(written.get(error.field, error.field), error.problem, error.remedy) from error


@contextmanager
def _naming(flag: str) -> Iterator[None]:
    try:
        yield
    except FileError as error:
        raise ConfigurationError(flag, error.message, error.advice) from error


def topology_of(values: argparse.Namespace, previous: Placement | None, load: NDArray[Any]) -> Topology:
    """The ranks that the flags describe; raises ConfigurationError, EplbInputError and TooFewSlots.

    `load` [steps, layers, experts] has to fit: groups divide the experts, `previous` has the same layers and experts.
    """
    from windtunnel.eplb.topology import Topology

    per_rank = _numbers("--slots-per-rank", values.slots_per_rank)
    if per_rank is not None and values.slots is not None:
        raise ConfigurationError("--slots", "is given beside --slots-per-rank", "Give one of the two.")
    if per_rank is None and values.slots is None:
        if previous is None:
            remedy = "Say how many slots there are in one layer: --slots 288, or --slots-per-rank 9,9,8,…"
            raise ConfigurationError("--slots", "is missing", remedy)
        per_rank = previous.slots_per_rank
    ranks = values.ranks
    if ranks is None and per_rank is None and previous is None:
        raise ConfigurationError("--ranks", "is missing", "Say how many ranks there are: --ranks 32.")
    if ranks is None:
        ranks = len(per_rank) if per_rank is not None else previous.num_ranks if previous is not None else 1
    if previous is not None:
        _check_previous(previous, ranks, load)
    topology = Topology.uniform(
        ranks, values.slots, nodes=values.nodes, num_groups=values.groups, slots_per_rank=per_rank
    )
    if previous is not None and previous.slots_per_rank != topology.slots_per_rank:
        problem = f"has {_counted(previous.slots_per_rank)} slots, the flags say {_counted(topology.slots_per_rank)}"
        raise ConfigurationError("--previous", problem, "Leave the flags for slots out, or plan without --previous.")
    if load.shape[2] % values.groups:
        problem = f"{load.shape[2]} experts do not divide into {values.groups} groups"
        raise ConfigurationError("--groups", problem, "Give the number in the model's configuration (n_group).")
    return topology.without(_dead_ranks(values.dead_ranks, ranks))


def _dead_ranks(text: str | None, ranks: int) -> tuple[int, ...]:
    dead = _numbers("--dead-ranks", text) or ()
    unknown = [rank for rank in dead if not 0 <= rank < ranks]
    if unknown:
        remedy = f"Ranks are 0 to {ranks - 1}."
        raise ConfigurationError("--dead-ranks", f"there is no rank {unknown[0]}", remedy)
    if len(set(dead)) == ranks:
        raise ConfigurationError("--dead-ranks", "no rank is left alive", "Leave the ranks out that are alive.")
    return dead


def _check_previous(previous: Placement, ranks: int, load: NDArray[Any]) -> None:
    layers, experts = load.shape[1:]
    for what, has, other, whose in (
        ("layers", previous.num_layers, layers, "the load"),
        ("experts", previous.num_experts, experts, "the load"),
        ("ranks", previous.num_ranks, ranks, "the flags"),
    ):
        if has != other:
            problem = f"has {has} {what}, {whose} {'say' if whose == 'the flags' else 'has'} {other}"
            raise ConfigurationError("--previous", problem, "Is it another model's? Then plan without --previous.")


def _counted(slots_per_rank: tuple[int, ...]) -> str:
    return ",".join(map(str, slots_per_rank[:8])) + (",…" if len(slots_per_rank) > 8 else "")


def survivors(previous: Placement | None, topology: Topology) -> Placement | None:
    """What is left of a placement on the ranks that are alive."""
    dead = topology.dead_ranks
    return previous if previous is None or not dead else previous.without_ranks(dead, previous.epoch)


def shape_text(load: NDArray[Any], topology: Topology) -> str:
    """What is planned for: `58 layers × 256 experts over 32 ranks on 4 nodes, 288 slots`."""
    alive, dead = len(topology.live_ranks), len(topology.dead_ranks)
    ranks = f"{_some(alive, 'live rank')} ({dead} dead)" if dead else _some(alive, "rank")
    nodes = f" on {_nodes(topology)}" if topology.num_nodes > 1 else ""
    layers, experts = load.shape[1:]
    return f"{_some(layers, 'layer')} × {experts} experts over {ranks}{nodes}, {topology.num_slots} slots"


def _nodes(topology: Topology) -> str:
    """`4 nodes`, or `5 unequal nodes (2 with 7 ranks, 3 with 6)`."""
    of_size = Counter(Counter(topology.node_of_rank).values())
    if len(of_size) == 1:
        return f"{topology.num_nodes} nodes"
    (most, num_most), *fewer = sorted(of_size.items(), reverse=True)
    sizes = [f"{num_most} with {_some(most, 'rank')}", *(f"{count} with {ranks}" for ranks, count in fewer)]
    return f"{topology.num_nodes} unequal nodes ({', '.join(sizes)})"


def _some(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def steps_text(steps: int) -> str:
    """`1,000 steps`."""
    return _some(steps, "step")


def constraints_of(values: argparse.Namespace) -> Constraints:
    """What a placement must keep to."""
    from windtunnel.eplb.policies import Constraints

    pinned: dict[int, tuple[int, ...]] = {}
    for expert, ranks in values.pinned or ():
        pinned[expert] = pinned.get(expert, ()) + ranks
    return Constraints(values.min_replicas, values.spread, pinned or None, values.keep_groups)


def budget_of(values: argparse.Namespace) -> Budget:
    """How much may move; raises ConfigurationError."""
    from windtunnel.eplb.policies import Budget

    if values.bytes_per_rank is not None and not values.expert_bytes:
        raise ConfigurationError("--bytes-per-rank", "wants the size of an expert", "Give --expert-bytes too.")
    return Budget(
        values.max_moved_ratio,
        values.bytes_per_rank,
        values.expert_bytes,
        values.tolerance,
        _FULL_REPLAN[values.full_replan],
    )


def _numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        remedy = "Write whole numbers with commas between them: 9,9,8,8."
        raise ConfigurationError(flag, f"{text!r} is no list of numbers", remedy) from None
