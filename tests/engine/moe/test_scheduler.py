"""Tokens do not depend on who else is served, on preemption, or on what the cache still knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.engine.moe.generating import CONFIG, LocalExperts, generated, model_of, prompts
from windtunnel.engine.moe.kv import KvCache
from windtunnel.engine.moe.sampling import Sampling, choose, log_probabilities
from windtunnel.engine.moe.scheduler import Chosen, Generation, Scheduler
from windtunnel.engine.moe.tokenizer import END, make_tokenizer, texts_of

TEXTS = texts_of(make_tokenizer(CONFIG.vocabulary_size))
MODEL, EXPERTS = model_of(), LocalExperts()
GREEDY = Sampling(max_tokens=20, ignore_eos=True)


def asked(prompt: Sequence[int], sampling: Sampling = GREEDY) -> tuple[Generation, list[Chosen]]:
    told: list[Chosen] = []
    return Generation(list(prompt), sampling, told.append), told


def scheduler(num_blocks: int = 256, *, max_running: int = 64, max_step_tokens: int = 512) -> Scheduler:
    cache = KvCache(CONFIG, num_blocks)
    return Scheduler(cache, TEXTS, max_running=max_running, max_step_tokens=max_step_tokens)


def serve(scheduler: Scheduler, generations: Sequence[Generation], most_steps: int = 5000) -> None:
    for generation in generations:
        scheduler.add(generation)
    for _ in range(most_steps):
        planned = scheduler.plan()
        if not planned:
            break
        logits = MODEL.step(scheduler.cache, [work.span for work in planned], EXPERTS)
        scheduler.finish_step(planned, logits)
    assert not scheduler.running and not scheduler.waiting


@pytest.mark.parametrize(
    ("num_blocks", "max_running", "max_step_tokens"), [(256, 64, 512), (256, 3, 512), (256, 64, 16), (12, 64, 64)]
)
def test_greedy_tokens_are_those_of_a_run_alone(num_blocks: int, max_running: int, max_step_tokens: int) -> None:
    wanted = prompts(10)
    alone = generated(MODEL, EXPERTS, wanted, 20, batch=1)
    served = scheduler(num_blocks, max_running=max_running, max_step_tokens=max_step_tokens)
    generations = [asked(prompt)[0] for prompt in wanted]
    serve(served, generations)
    assert [generation.answer for generation in generations] == alone
    assert served.cache.num_available == num_blocks
    assert (served.num_preempted > 0) == (num_blocks == 12)


def test_a_prompt_that_begins_as_an_earlier_one_finds_what_was_computed_and_answers_the_same() -> None:
    (prompt,) = prompts(1, seed=5, most=60)
    prompt = (prompt * 60)[:60]
    served = scheduler()
    first, second, other = asked(prompt)[0], asked(prompt)[0], asked([*prompt[:40], 5, 6, 7])[0]
    for generation in (first, second, other):
        serve(served, [generation])
    assert (first.num_cached, second.num_cached, other.num_cached) == (0, 48, 32)
    assert second.answer == first.answer
    assert other.answer == generated(MODEL, EXPERTS, [other.prompt], 20, batch=1)[0]


def test_what_is_known_makes_room_when_it_is_needed_and_is_not_mistaken() -> None:
    served = scheduler(16)
    for seed in range(12):
        wanted = prompts(3, seed=seed % 4, most=50)
        generations = [asked(prompt)[0] for prompt in wanted]
        serve(served, generations)
        assert [g.answer for g in generations] == generated(MODEL, EXPERTS, wanted, 20, batch=1)
    assert served.cache.num_available == 16


def test_a_generation_that_is_cancelled_frees_its_blocks_wherever_it_is() -> None:
    served = scheduler(max_running=1)
    running, waiting = asked([1, 2, 3])[0], asked([4, 5])[0]
    served.add(running)
    served.add(waiting)
    planned = served.plan()
    assert [work.generation for work in planned] == [running]
    served.cancel(waiting)
    served.cancel(running)
    served.cancel(running)
    assert served.cache.num_available == 256
    assert {running.finish_reason, waiting.finish_reason} == {"abort"}
    assert not served.plan()


def answer_to(prompt: list[int], sampling: Sampling) -> tuple[Generation, str]:
    generation, told = asked(prompt, sampling)
    serve(scheduler(), [generation])
    return generation, "".join(chosen.text for chosen in told)


def test_a_stop_string_ends_the_answer_before_it_though_it_spans_tokens() -> None:
    whole, text = answer_to([9, 9, 9], Sampling(max_tokens=40, ignore_eos=True))
    stop = text[len(text) // 2 - 3 : len(text) // 2 + 4]
    cut, shown = answer_to([9, 9, 9], Sampling(max_tokens=40, ignore_eos=True, stop=("never this", stop)))
    assert shown == text[: text.index(stop)]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)
    assert cut.answer == whole.answer[: len(cut.answer)]
    _, kept = answer_to([9, 9, 9], Sampling(max_tokens=40, ignore_eos=True, stop=(stop,), include_stop=True))
    assert kept == shown + stop


def test_what_might_have_become_a_stop_string_is_shown_in_the_end() -> None:
    _, text = answer_to([9, 9, 9], Sampling(max_tokens=12, ignore_eos=True))
    generation, shown = answer_to([9, 9, 9], Sampling(max_tokens=12, ignore_eos=True, stop=(text[-4:] + "~",)))
    assert shown == text
    assert generation.finish_reason == "length"


def test_the_end_token_ends_an_answer_unless_it_is_to_be_ignored() -> None:
    logits = np.zeros(CONFIG.vocabulary_size, np.float32)
    logits[END], logits[300] = 9, 8
    ending, told = asked([1], Sampling(max_tokens=5, min_tokens=1))
    ending.take_token(logits, TEXTS)
    assert (ending.answer, ending.finish_reason) == ([300], None)
    ending.take_token(logits, TEXTS)
    assert (ending.answer, ending.finish_reason, told[-1].text) == ([300, END], "stop", "")
    ignoring, _ = asked([1], Sampling(max_tokens=2, ignore_eos=True))
    ignoring.take_token(logits, TEXTS)
    assert ignoring.finish_reason is None


def test_a_seed_gives_the_same_tokens_in_any_company() -> None:
    sampling = Sampling(max_tokens=20, temperature=1.0, top_p=0.9, top_k=50, seed=7, ignore_eos=True)
    alone, _ = answer_to([3, 4, 5], sampling)
    among = asked([3, 4, 5], sampling)[0]
    serve(scheduler(), [asked(prompt)[0] for prompt in prompts(5)] + [among])
    greedy, _ = answer_to([3, 4, 5], GREEDY)
    assert alone.answer == among.answer != greedy.answer


def test_sampling_follows_the_probabilities() -> None:
    logits = np.log(np.array([0.6, 0.3, 0.1])).astype(np.float32) * 512
    rng = np.random.default_rng(0)
    counts = np.bincount([choose(logits, Sampling(1, 1.0), rng) for _ in range(4000)], minlength=3) / 4000
    assert np.abs(counts - [0.6, 0.3, 0.1]).max() < 0.03
    assert {choose(logits, Sampling(1, 1.0, top_k=2), rng) for _ in range(200)} == {0, 1}
    assert {choose(logits, Sampling(1, 1.0, top_p=0.5), rng) for _ in range(200)} == {0}
    assert np.allclose(np.exp(log_probabilities(logits)), [0.6, 0.3, 0.1], atol=1e-4)


def test_logprobs_tell_the_alternatives_the_chosen_first_where_it_is_greedy() -> None:
    generation, told = asked([1, 2], Sampling(max_tokens=3, ignore_eos=True, logprobs=4))
    serve(scheduler(), [generation])
    for chosen in told:
        assert len(chosen.top_logprobs) == 4
        assert chosen.top_logprobs[0] == (chosen.token, chosen.logprob)
        assert [p for _, p in chosen.top_logprobs] == sorted((p for _, p in chosen.top_logprobs), reverse=True)
