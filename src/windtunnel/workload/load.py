"""Load a dataset by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from windtunnel.errors import ConfigurationError, did_you_mean
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.custom import custom_samples
from windtunnel.workload.progress import Progress
from windtunnel.workload.random_prompts import random_samples
from windtunnel.workload.sample import Sample
from windtunnel.workload.sharegpt import sharegpt_samples

if TYPE_CHECKING:
    from windtunnel.workload.tokenizer.base import Tokenizer


class Loader(Protocol):
    """Makes a dataset's samples."""

    def __call__(
        self,
        tokenizer: Tokenizer | None,
        config: DatasetConfig,
        *,
        template_tokens: int = 0,
        on_progress: Progress | None = None,
    ) -> list[Sample]:
        """As `load_samples`."""


LOADERS: dict[str, Loader] = {"random": random_samples, "custom": custom_samples, "sharegpt": sharegpt_samples}


def load_samples(
    config: DatasetConfig,
    tokenizer: Tokenizer | None,
    *,
    template_tokens: int = 0,
    on_progress: Progress | None = None,
) -> list[Sample]:
    """The requests of a dataset, in the order in which they are sent.

    Requests that ask for more tokens than --max-model-len are left out at the end, so there may be fewer than were
    asked for.

    Args:
        config: which dataset and what of it.
        tokenizer: the server's; None: prompts are not counted.
        template_tokens: what the server's chat template adds to each prompt in all; 0: none is applied.
        on_progress: told what is done, of how much.

    Raises ConfigurationError, DatasetError, FileError, TokenizerError, MissingExtra.
    """
    loader = LOADERS.get(config.name)
    if loader is None:
        suggestion = did_you_mean(config.name, LOADERS)
        raise ConfigurationError(
            "--dataset-name", f"no dataset is called {config.name}{suggestion}", f"Known are {', '.join(LOADERS)}."
        )
    samples = loader(tokenizer, config, template_tokens=template_tokens, on_progress=on_progress)
    if config.max_model_len is None:
        return samples
    limit = config.max_model_len
    fitting = [sample for sample in samples if sample.prompt_tokens + (sample.output_tokens or 0) <= limit]
    if not fitting:
        raise ConfigurationError(
            "--max-model-len",
            f"each of the {len(samples)} requests asks for more than {limit} tokens in and out",
            "Raise it, or ask for less.",
        )
    return fitting
