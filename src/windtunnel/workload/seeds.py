"""One seed for each source of chance, all derived from --seed, so that one can change without moving the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy as np

LENGTHS = "lengths"
"""Takes --seed itself, and lengths are drawn as vLLM's client draws them: one seed asks both for the same lengths."""
WORDS = "words"
"""Which tokens of the vocabulary random prompts are made of."""
PREFIX = "prefix"
CONTENTS = "contents"
SHUFFLE = "shuffle"
OVERSAMPLE = "oversample"
ARRIVALS = "arrivals"
LORA = "lora"

SOURCES = (LENGTHS, WORDS, PREFIX, CONTENTS, SHUFFLE, OVERSAMPLE, ARRIVALS, LORA)


def derive_seeds(seed: int) -> dict[str, int]:
    """Each source of chance with its seed (64 bits), to be recorded with the run.

    Raises ConfigurationError for a negative seed.
    """
    import numpy as np

    if seed < 0:
        raise ConfigurationError("--seed", f"{seed} is negative", "Give 0 or a positive whole number.")
    derived = {
        source: int(np.random.SeedSequence(seed, spawn_key=(place,)).generate_state(1, np.uint64)[0])
        for place, source in enumerate(SOURCES)
    }
    return derived | {LENGTHS: seed}


def generator(seed: int, source: str) -> np.random.Generator:
    """The generator of one source of chance under --seed."""
    import numpy as np

    return np.random.default_rng(derive_seeds(seed)[source])
