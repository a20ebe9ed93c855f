"""Greedy tokens are the same whatever the batch, the chunks of a prompt, and the blocks that it lies in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.moe.generating import CONFIG, NEVER, LocalExperts, generated, model_of, prompts
from windtunnel.engine.moe.config import ModelConfig, config_of
from windtunnel.engine.moe.kv import KvCache
from windtunnel.engine.moe.model import Span
from windtunnel.errors import EngineConfigError


def test_tokens_do_not_depend_on_batches_or_chunks() -> None:
    model, experts, asked = model_of(), LocalExperts(), prompts(12)
    alone = generated(model, experts, asked, 24, batch=1)
    assert len({tuple(answer) for answer in alone}) == 12
    for batch, chunk in ((12, 512), (5, 7), (3, 1)):
        assert generated(model, experts, asked, 24, batch=batch, chunk=chunk) == alone


def test_prompts_and_single_tokens_go_through_one_step_together() -> None:
    model, experts = model_of(), LocalExperts()
    first, second = prompts(2, seed=3)
    alone, together = KvCache(CONFIG, 64), KvCache(CONFIG, 64)
    apart = [model.step(alone, [Span(first, 0, [0, 1, 2, 3])], experts)]
    apart.append(model.step(alone, [Span([7], len(first), [0, 1, 2, 3])], experts))
    apart.append(model.step(alone, [Span(second, 0, [4, 5, 6, 7])], experts))
    model.step(together, [Span(first, 0, [9, 3, 5, 1])], experts)
    mixed = model.step(together, [Span(second, 0, [2, 8, 4, 6]), Span([7], len(first), [9, 3, 5, 1])], experts)
    assert np.array_equal(mixed, np.concatenate([apart[2], apart[1]]))


def test_every_expert_is_called_for_some_more_than_others() -> None:
    experts = LocalExperts()
    generated(model_of(), experts, prompts(20), 20, batch=20)
    assert len(set(experts.calls)) == CONFIG.num_layers * CONFIG.num_experts


def test_forbidden_tokens_are_never_answered() -> None:
    answers = generated(model_of(), LocalExperts(), prompts(8), 40, batch=8)
    assert not {token for answer in answers for token in answer} & set(NEVER.tolist())


@pytest.mark.parametrize(
    ("sizes", "field"),
    [
        ({"num_layers": 0}, "num_layers"),
        ({"hidden_size": 60}, "hidden_size"),
        ({"top_k": 17}, "top_k"),
        ({"expert_size": 20_000}, "expert_size"),
        ({"num_expert": 4}, "num_expert"),
    ],
)
def test_sizes_that_do_not_fit_together_are_named(sizes: dict[str, int], field: str) -> None:
    with pytest.raises(EngineConfigError) as caught:
        config_of("tiny", sizes)
    assert caught.value.field == field


def test_an_unknown_config_gets_the_name_that_was_meant() -> None:
    with pytest.raises(EngineConfigError, match="did you mean tiny"):
        config_of("tini", {})


def test_a_config_of_ones_own_works() -> None:
    config = ModelConfig(1, 8, 2, 3, 1, 4, 0, 256, 32)
    logits = model_of(config).step(KvCache(config, 2), [Span([1, 2, 3], 0, [1])], LocalExperts(config))
    assert logits.shape == (1, 256)
