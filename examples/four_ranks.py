"""Four ranks serve a mixture-of-experts layer stack, its load drifts, and one rank dies while experts move.

python examples/four_ranks.py
"""

import multiprocessing
import time

import numpy as np

from windtunnel.eplb import (
    AgentConfig,
    CallbackWeights,
    ExpertStore,
    RankAgent,
    Rebalancer,
    RebalancerConfig,
    Topology,
    allocate_tensors,
    make_transport,
)

LAYERS, EXPERTS, SLOTS, FLOATS = 4, 16, 6, 1 << 18  # an expert has 1 MiB in each layer
PROBE = slice(None, None, FLOATS // 8)


def weights_of(layer: int, expert: int) -> np.ndarray:
    """What a checkpoint would hold."""
    return np.random.default_rng([layer, expert]).standard_normal(FLOATS, np.float32)


def serve(rank: int, port: int, fail_at: tuple[str, str] | None) -> None:
    """A rank: loads its experts, lets an agent move them, and computes with whatever its slots hold by now."""
    memory = make_transport("shm", f"rank {rank}")
    tensors = allocate_tensors(memory, [[((FLOATS,), np.float32)]] * LAYERS, SLOTS)
    held = np.tile(np.arange(rank * SLOTS, (rank + 1) * SLOTS) % EXPERTS, (LAYERS, 1))
    for (layer, slot), expert in np.ndenumerate(held):
        tensors[layer][0][slot] = weights_of(layer, expert)
    expected = {where: weights_of(*where)[PROBE] for where in np.ndindex(LAYERS, EXPERTS)}
    checkpoint = CallbackWeights(lambda layer, expert: weights_of(layer, expert).tobytes())
    config = AgentConfig(port=port)
    with RankAgent(
        rank, ExpertStore(tensors), memory, held, EXPERTS, config, weights=checkpoint, fail_at=fail_at
    ) as agent:
        agent.wait_serving()
        while True:  # a step of the engine: route, compute, and hold on to nothing afterwards
            with agent.routing() as table, agent.reading(table.epoch) as view:
                for layer, slot in np.ndindex(LAYERS, SLOTS):
                    if (expert := view.placement.slots[layer, rank, slot]) >= 0:
                        assert np.array_equal(agent.expert(view, layer, slot)[0][PROBE], expected[layer, expert])
            time.sleep(0.01)


def main() -> None:
    """Coordinate, drift, kill, go on."""
    rng = np.random.default_rng(0)
    load = rng.lognormal(size=(LAYERS, EXPERTS))
    config = RebalancerConfig(window_steps=5)
    with Rebalancer(Topology.uniform(4, 4 * SLOTS), config) as rebalancer:
        port = rebalancer.address[1]
        for rank in range(4):
            fail_at = ("transferring+copied", "kill", 13) if rank == 2 else None
            multiprocessing.Process(target=serve, args=(rank, port, fail_at), daemon=True).start()
        rebalancer.wait_ready()
        for round_ in range(6):
            load *= rng.lognormal(sigma=0.3, size=load.shape)
            for _ in range(5):
                rebalancer.record(rng.poisson(1000 * load))
            r = rebalancer.rebalance()
            print(
                f"round {round_}: {r.result:9} epoch {r.epoch:2}, ranks {rebalancer.live_ranks}, balancedness "
                f"{r.balancedness_before:.3f} → {r.balancedness:.3f}, {r.bytes_moved >> 20} MiB moved",
                r.reason and f"({r.reason})",
            )
            rebalancer.wait_ready()


if __name__ == "__main__":
    main()
