"""What must be true in a simulated cluster at every moment; see `world`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tests.eplb.simulated import DIGESTS, LAYERS, CoordinatorProcess, RankProcess, expert_bytes
from windtunnel.eplb.placement import EMPTY, Placement
from windtunnel.eplb.transaction.instructions import View
from windtunnel.eplb.transaction.staging import BufferState
from windtunnel.errors import StaleEpoch

if TYPE_CHECKING:
    from tests.eplb.world import World


def check_all(world: World) -> None:
    """Raise AssertionError with the first that does not hold."""
    assert not world.violations, world.violations
    members = world.members()
    for rank in world.ranks.values():
        if rank.alive:
            check_content(world, rank)
            check_staging(rank)
    check_agreement(world, members)
    check_routes(world, members)
    check_coverage(world, members)


def check_content(world: World, rank: RankProcess) -> None:
    """Whoever reads an epoch here, by a view that is served or still held, finds exactly the experts that it names."""
    newest = world.coordinator.machine.last_epoch
    own = {rank.views.table.epoch} if rank.views.table else set()
    for epoch in {*range(max(newest - 3, 0), newest + 1), *own}:
        try:
            with rank.views.reading(epoch) as view:
                check_view(rank, view)
        except StaleEpoch:
            continue
    for pin in rank.pins:
        if pin.view:
            check_view(rank, pin.view)


def check_view(rank: RankProcess, view: View) -> None:
    for layer, slots in enumerate(view.placement.slots[:, rank.rank].tolist()):
        for slot, expert in enumerate(slots):
            if expert != EMPTY and rank.bytes_of(view, layer, slot) != expert_bytes(layer, expert):
                where = f"{rank.name}, epoch {view.placement.epoch}, view {view.number}, layer {layer}, slot {slot}"
                raise AssertionError(f"{where}: {rank.bytes_of(view, layer, slot)!r} is not expert {expert}")


def check_staging(rank: RankProcess) -> None:
    """A verified buffer holds its expert, whatever lands late."""
    for buffer in rank.machine.staging.buffers:
        if buffer.state is BufferState.VERIFIED and buffer.order:
            copy = buffer.order.copy
            staged = rank.staging[buffer.number][: buffer.order.num_bytes].tobytes()
            assert staged == expert_bytes(copy.layer, copy.expert), (
                f"{rank.name}: buffer {buffer.number} is overwritten"
            )
            assert DIGESTS[copy.layer, copy.expert] == buffer.order.digest


def check_agreement(world: World, members: dict[int, RankProcess]) -> None:
    """Whoever routes by an epoch, at whatever time, has the same map of it."""
    for process in [*members.values(), world.coordinator]:
        if table := process.views.table:
            digest = world.maps.setdefault(table.epoch, table.placement.digest)
            assert digest == table.placement.digest, f"two maps of epoch {table.epoch}"


def check_routes(world: World, members: dict[int, RankProcess]) -> None:
    """Whatever a member routes by, now or in a step that is not done, the members that it names answer for it."""
    for rank, placement in routed(world, members):
        if isinstance(rank, RankProcess) and placement.epoch < rank.missed_epoch:
            continue
        for other in members.values():
            named = (placement.slots[:, other.rank] != EMPTY).any()
            if not named or rank in (None, other) or not serves_since(other, placement.epoch):
                continue
            try:
                with other.views.reading(placement.epoch) as view:
                    assert view.placement.digest == placement.digest
            except StaleEpoch:
                who = rank.name if rank else "the coordinator"
                raise AssertionError(f"{who} routes by epoch {placement.epoch}; {other.name} does not answer") from None


def routed(
    world: World, members: dict[int, RankProcess]
) -> Iterator[tuple[RankProcess | CoordinatorProcess | None, Placement]]:
    """What is routed by, and by whom."""
    processes: list[RankProcess | CoordinatorProcess] = [*members.values()]
    if world.coordinator.alive:
        processes.append(world.coordinator)
    for process in processes:
        if process.views.table:
            yield process, process.views.table.placement
        for pin in process.pins:
            if pin.placement is not None:
                yield process, pin.placement


def serves_since(rank: RankProcess, epoch: int) -> bool:
    """Whether this life of the rank has been serving since that epoch or an earlier one."""
    return rank.first_epoch is not None and rank.first_epoch <= epoch


def check_coverage(world: World, members: dict[int, RankProcess]) -> None:
    """When the coordinator is idle and has masked the dead: each expert is on a member, or reported missing."""
    machine = world.coordinator.machine
    placement = machine.committed
    absent = [r for r in range(placement.num_ranks) if r not in members]
    if not world.coordinator.runs or machine.stage != "idle" or (placement.slots[:, absent] != EMPTY).any():
        return
    for layer, expert in np.ndindex(LAYERS, placement.num_experts):
        held = any(rank in members for rank, _ in placement.ranks_of(layer, expert))
        assert held or (layer, expert) in placement.missing, f"layer {layer}, expert {expert} is lost and not reported"


def check_at_rest(world: World) -> None:
    """When all is quiet, after a rebalance: nothing is left over anywhere, and everyone knows what is where."""
    machine = world.coordinator.machine
    assert world.outcomes[-1].committed, world.outcomes[-1]
    assert not machine.committed.missing or not world.can_restore
    assert set(machine.members) == {rank.rank for rank in world.ranks.values() if rank.alive}
    for rank in world.members().values():
        where = f"{rank.name}: "
        assert rank.machine.phase == "serving", where + rank.machine.phase
        assert rank.machine.pending() is None, where
        assert rank.machine.committed == machine.committed, where
        assert {b.state for b in rank.machine.staging.buffers} == {BufferState.FREE}, where + str(
            [b.state.value for b in rank.machine.staging.buffers]
        )
        assert not (rank.views.is_waiting or rank.todo or rank.inbox or rank.mover.busy or rank.views.is_used()), where
        assert np.array_equal(machine.contents[:, rank.rank], rank.machine.contents), where
        held = rank.machine.contents != EMPTY
        assert np.array_equal(machine.since[:, rank.rank][held], rank.machine.since[held]), where
        assert np.array_equal(machine.committed.slots[:, rank.rank], rank.machine.contents), where
        for layer, slot in np.argwhere(held).tolist():
            assert rank.home_bytes(layer, slot) == expert_bytes(layer, int(rank.machine.contents[layer, slot])), where
    assert not any(read.may_land for read in world.fabric.under_way)
