"""The `sharegpt` dataset: a JSON array of conversations. The first turn is the prompt, the second tells the length.

What is taken is what vLLM's client takes: conversations of two turns or more, of which the prompt and the answer have
at least 4 tokens each, the prompt at most 1,024, and both at most 2,048. With --sharegpt-output-len the answer's length
is that, and may be below 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from windtunnel.errors import ConfigurationError, DatasetError
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.dataset_file import UTF8_MARK, dataset_path, raise_broken, unreadable
from windtunnel.workload.progress import Progress
from windtunnel.workload.sample import Sample
from windtunnel.workload.selection import num_wanted, order_of, oversample

if TYPE_CHECKING:
    from windtunnel.workload.tokenizer.base import Tokenizer

MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048
_AT_ONCE = 128
_REMEDY = 'It is to be an array of {"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}, …]}.'


class _Entry(Struct):
    conversations: list[Any] | None = None


class _Turn(Struct):
    value: str


class Exchange(Struct, frozen=True):
    """The first two turns of a conversation."""

    prompt: str
    answer: str


def sharegpt_samples(
    tokenizer: Tokenizer | None,
    config: DatasetConfig,
    *,
    template_tokens: int = 0,
    on_progress: Progress | None = None,
) -> list[Sample]:
    """The requests of a ShareGPT file.

    Args:
        tokenizer: None: nothing is counted or left out, and the answers' length must be given.
        config: path, how many, the order, the answers' length.
        template_tokens: what the server's chat template adds to a prompt.
        on_progress: told how many requests are found, of how many.

    Raises DatasetError with the entry's number, FileError, ConfigurationError.
    """
    if tokenizer is None and config.output_len is None:
        raise ConfigurationError(
            "--skip-tokenizer-init",
            "answers of a ShareGPT file can't be measured without a tokenizer",
            "Give --sharegpt-output-len, or leave the flag out.",
        )
    path = dataset_path(config)
    exchanges = _read(path)
    num = num_wanted(len(exchanges), config)
    samples: list[Sample] = []
    ordered = [exchanges[i] for i in order_of(len(exchanges), config)]
    for sample in _kept(ordered, tokenizer, config.output_len, template_tokens):
        samples.append(sample)
        if on_progress and (len(samples) % _AT_ONCE == 0 or len(samples) == num):
            on_progress(len(samples), num)
        if len(samples) == num:
            break
    if not samples:
        problem = f"of {len(exchanges)} conversations none has a prompt and an answer of the lengths that are used"
        raise DatasetError(str(path), problem, f"{MIN_TOKENS} to {MAX_PROMPT_TOKENS} tokens, as vLLM has it.")
    return oversample(samples, num, config)


def _kept(
    exchanges: list[Exchange], tokenizer: Tokenizer | None, output_len: int | None, template_tokens: int
) -> Iterator[Sample]:
    for start in range(0, len(exchanges), _AT_ONCE):
        part = exchanges[start : start + _AT_ONCE]
        if tokenizer is None:
            yield from (Sample(exchange.prompt, 1, output_len) for exchange in part)
            continue
        prompts = [len(ids) for ids in tokenizer.encode_batch([e.prompt for e in part], special=True)]
        answers = _answer_lens(part, tokenizer, output_len)
        overhead = template_tokens - tokenizer.num_special if template_tokens else 0
        for exchange, num_in, num_out in zip(part, prompts, answers, strict=True):
            if is_usable(num_in, num_out, length_given=output_len is not None):
                yield Sample(exchange.prompt, num_in + overhead, num_out)


def _answer_lens(part: list[Exchange], tokenizer: Tokenizer, output_len: int | None) -> list[int]:
    """As vLLM's client counts them: with the special tokens that a prompt would have."""
    if output_len is not None:
        return [output_len] * len(part)
    return [len(ids) for ids in tokenizer.encode_batch([e.answer for e in part], special=True)]


def is_usable(prompt_tokens: int, output_tokens: int, *, length_given: bool) -> bool:
    """Whether a conversation is neither too short nor too long."""
    if prompt_tokens < MIN_TOKENS or (output_tokens < MIN_TOKENS and not length_given):
        return False
    return prompt_tokens <= MAX_PROMPT_TOKENS and prompt_tokens + output_tokens <= MAX_TOTAL_TOKENS


def _read(path: Path) -> list[Exchange]:
    try:
        data = path.read_bytes().removeprefix(UTF8_MARK)
    except OSError as error:
        raise unreadable(path, error) from error
    if not data.strip():
        raise DatasetError(str(path), "it is empty", _REMEDY)
    try:
        entries = msgspec.json.decode(data, type=list[Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        if data.lstrip()[:1] == b"{":
            raise DatasetError(
                str(path), "it holds an object, or JSONL", "`jq -s . FILE` makes an array of JSONL. " + _REMEDY
            ) from error
        raise_broken(path, data, error, _REMEDY, _line_of(data, error))
    found = [exchange for place, raw in enumerate(entries) if (exchange := _exchange(path, place, raw)) is not None]
    if not found:
        raise DatasetError(str(path), f"of {len(entries)} entries none has `conversations` of two turns", _REMEDY)
    return found


def _exchange(path: Path, place: int, raw: Raw) -> Exchange | None:
    """The first two turns of an entry; None where there are not two."""
    try:
        turns = msgspec.json.decode(raw, type=_Entry).conversations
        if turns is None or len(turns) < 2:
            return None
        prompt, answer = msgspec.convert(turns[:2], list[_Turn])
        return Exchange(prompt.value, answer.value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DatasetError(str(path), f"entry {place + 1}: {error}", _REMEDY) from error


def _line_of(data: bytes, error: Exception) -> int | None:
    """The line of the byte that msgspec's message names at its end: `… (byte 123)`."""
    _, _, tail = str(error).rpartition("(byte ")
    return data.count(b"\n", 0, int(tail[:-1])) + 1 if tail[:-1].isdigit() else None
