"""Continuous batching: which tokens of which generations go through the next step.

Running generations go first, one token each; what room is left in the step is given to prompts, in chunks. A generation
that finds no block free takes those of the one that came last, which waits again and is computed anew: its tokens stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.engine.moe.kv import BLOCK_TOKENS, KvCache, blocks_for
from windtunnel.engine.moe.model import Span
from windtunnel.engine.moe.sampling import Sampling, choose, log_probabilities
from windtunnel.engine.moe.tokenizer import END
from windtunnel.errors import WindtunnelError

TokenTexts = Sequence[str]


class Chosen(NamedTuple):
    """A token of an answer."""

    token: int
    text: str
    """What may be shown now: less than the token's text while a stop string may have begun, more later."""
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    finish_reason: str | None = None
    """`stop` or `length`, with the last one."""
    stop_reason: str | None = None
    """The stop string that ended the answer."""


@dataclass(eq=False)
class Generation:
    """A prompt and its answer, on their way."""

    prompt: list[int]
    sampling: Sampling
    on_token: Callable[[Chosen], None]
    """Called for each token."""
    on_failed: Callable[[WindtunnelError], None] = lambda error: None
    """Called in place of further tokens where there will be none."""
    answer: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    """Tokens of prompt and answer that are in the cache."""
    num_cached: int = 0
    """Tokens of the prompt that were found there."""
    finish_reason: str | None = None
    """`stop`, `length`, `abort`, or `error`."""
    stop_reason: str | None = None
    _held: str = ""
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.sampling.seed)

    @property
    def num_tokens(self) -> int:
        """Of prompt and answer."""
        return len(self.prompt) + len(self.answer)

    def next_tokens(self, most: int) -> list[int]:
        """What is computed next: at most so many tokens that are not in the cache."""
        start = self.num_computed
        if start >= len(self.prompt):
            return self.answer[start - len(self.prompt) :][:most]
        return [*self.prompt[start : start + most], *self.answer][:most]

    def take_token(self, logits: NDArray[np.float32], texts: TokenTexts) -> None:
        """Choose the next token from logits [vocabulary], and see whether the answer ends with it."""
        sampling = self.sampling
        if len(self.answer) < sampling.min_tokens and not sampling.ignore_eos:
            logits = logits.copy()
            logits[END] = -np.inf
        token = choose(logits, sampling, self._rng)
        self.answer.append(token)
        ended = token == END and not sampling.ignore_eos
        text = "" if ended else self._shown(texts[token])
        if ended:
            self.finish_reason = "stop"
        elif self.finish_reason is None and len(self.answer) >= sampling.max_tokens:
            self.finish_reason = "length"
        if self.finish_reason is not None and self.stop_reason is None:
            text, self._held = text + self._held, ""
        self.on_token(self._told(token, text, logits))

    def _shown(self, text: str) -> str:
        """What can be shown of what is held and `text`; ends the answer at a stop string."""
        self._held += text
        at = [(where, stop) for stop in self.sampling.stop if (where := self._held.find(stop)) >= 0]
        if at and len(self.answer) > self.sampling.min_tokens:
            where, stop = min(at)
            self.finish_reason, self.stop_reason = "stop", stop
            return self._held[: where + len(stop) if self.sampling.include_stop else where]
        keep = max((_overlap(self._held, stop) for stop in self.sampling.stop), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def _told(self, token: int, text: str, logits: NDArray[np.float32]) -> Chosen:
        chosen = Chosen(token, text, finish_reason=self.finish_reason, stop_reason=self.stop_reason)
        if self.sampling.logprobs is None:
            return chosen
        logarithms = log_probabilities(logits)
        best = np.argsort(-logarithms, kind="stable")[: self.sampling.logprobs]
        top = tuple((int(t), float(logarithms[t])) for t in best)
        return chosen._replace(logprob=float(logarithms[token]), top_logprobs=top)


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters of `text` a stop string may begin with."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0


class Work(NamedTuple):
    """A generation's part of a step."""

    generation: Generation
    span: Span
    is_last: bool
    """All its tokens are computed with it: a token can be chosen."""


class Scheduler:
    """Sequences that wait, and those that run. Not safe between threads."""

    def __init__(self, cache: KvCache, texts: TokenTexts, *, max_running: int, max_step_tokens: int) -> None:
        self.cache = cache
        self.texts = texts
        self.waiting: deque[Generation] = deque()
        self.running: list[Generation] = []
        """In the order in which they came."""
        self.num_preempted = 0
        self._max_running = max_running
        self._max_step_tokens = max_step_tokens

    def add(self, generation: Generation) -> None:
        """Let a generation wait for its turn. Its prompt and answer must fit into the cache."""
        self.waiting.append(generation)

    def cancel(self, generation: Generation) -> None:
        """Let a generation go, wherever it is; nothing happens where it has ended."""
        if generation in self.running:
            self.running.remove(generation)
            self._release(generation)
        elif generation in self.waiting:
            self.waiting.remove(generation)
        generation.finish_reason = generation.finish_reason or "abort"

    def fail(self, generation: Generation, error: WindtunnelError) -> None:
        """Let a generation go that can't be answered, and say so."""
        self.cancel(generation)
        generation.finish_reason = "error"
        generation.on_failed(error)

    def plan(self) -> list[Work]:
        """The next step; empty: there is nothing to do."""
        room = self._max_step_tokens
        planned: list[Work] = []
        for generation in sorted(self.running, key=lambda s: s.num_tokens - s.num_computed > 1):  # stable: prompts last
            if room <= 0:
                break
            if generation in self.running and (work := self._work(generation, room)) is not None:
                planned.append(work)
                room -= len(work.span.tokens)
        while room > 0 and self.waiting and len(self.running) < self._max_running:
            work = self._admit(self.waiting[0], room)
            if work is None:
                break
            self.running.append(self.waiting.popleft())
            planned.append(work)
            room -= len(work.span.tokens)
        return [work for work in planned if work.generation in self.running]  # some were put back for others' sake

    def _work(self, generation: Generation, room: int) -> Work | None:
        """A running generation's next tokens; where blocks are missing, those who came last are put back."""
        tokens = generation.next_tokens(room)
        missing = blocks_for(generation.num_computed + len(tokens)) - len(generation.blocks)
        while missing > 0:
            taken = self.cache.take(missing)
            if taken is not None:
                generation.blocks += taken
                break
            last = self.running[-1]
            self._preempt(last)
            if last is generation:
                return None
        return self._work_of(generation, tokens)

    def _admit(self, generation: Generation, room: int) -> Work | None:
        generation.blocks = self.cache.take_known(generation.prompt + generation.answer)
        generation.num_computed = len(generation.blocks) * BLOCK_TOKENS
        tokens = generation.next_tokens(room)
        taken = self.cache.take(blocks_for(generation.num_computed + len(tokens)) - len(generation.blocks))
        if taken is None:
            self._release(generation)
            return None
        generation.num_cached = generation.num_computed
        generation.blocks += taken
        return self._work_of(generation, tokens)

    def _work_of(self, generation: Generation, tokens: list[int]) -> Work:
        span = Span(tokens, generation.num_computed, generation.blocks)
        return Work(generation, span, generation.num_computed + len(tokens) == generation.num_tokens)

    def _preempt(self, generation: Generation) -> None:
        self.running.remove(generation)
        self._release(generation)
        self.waiting.appendleft(generation)
        self.num_preempted += 1

    def _release(self, generation: Generation) -> None:
        self.cache.give_back(generation.blocks)
        generation.blocks, generation.num_computed = [], 0

    def finish_step(self, planned: Sequence[Work], logits: NDArray[np.float32]) -> list[Generation]:
        """Take the step's logits [work, vocabulary]: choose tokens; the generations that ended with theirs."""
        ended: list[Generation] = []
        for work, row in zip(planned, logits, strict=True):
            generation = work.generation
            generation.num_computed += len(work.span.tokens)
            if work.is_last:
                generation.take_token(row, self.texts)
            self._remember(generation, work.span)
            if generation.finish_reason is not None:
                self.running.remove(generation)
                self._release(generation)
                ended.append(generation)
        return ended

    def _remember(self, generation: Generation, span: Span) -> None:
        """Make the blocks known that were filled by the span."""
        first, end = span.start // BLOCK_TOKENS, generation.num_computed // BLOCK_TOKENS
        if end > first:
            tokens = generation.prompt + generation.answer
            for index in range(first, end):
                piece = tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
                self.cache.remember(generation.blocks, index, piece)
