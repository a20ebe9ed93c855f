"""The `custom` dataset: a JSONL file, one request a line.

A line is an object with `prompt` (text, token ids, or chat messages) or `messages`, and, where --custom-output-len is
-1, `output_tokens`; other keys are passed over. The file is read twice as a stream: first every line is checked and
its place noted, then the lines that were drawn are read again. So a file larger than memory will do, and whether a file
is right does not depend on the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.custom_lines import Line, index_lines, needs_output_tokens, reread_lines, whole_tokens
from windtunnel.workload.dataset_file import dataset_path
from windtunnel.workload.progress import Progress, unheard
from windtunnel.workload.sample import Sample
from windtunnel.workload.selection import num_wanted, order_of, oversample

if TYPE_CHECKING:
    from windtunnel.wire.openai import Prompt
    from windtunnel.workload.tokenizer.base import Messages, Tokenizer

_AT_ONCE = 256


def custom_samples(
    tokenizer: Tokenizer | None,
    config: DatasetConfig,
    *,
    template_tokens: int = 0,
    on_progress: Progress | None = None,
) -> list[Sample]:
    """The requests of a JSONL file.

    Args:
        tokenizer: None: nothing is counted, prompts are sent as they are.
        config: path, how many, the order, and whether the chat template is applied here.
        template_tokens: what the server's chat template adds to a prompt that is sent as it is.
        on_progress: told how many bytes are checked, of how many; then how many prompts are ready, of how many.

    Raises DatasetError with the line's number, FileError, ConfigurationError, TokenizerError.
    """
    path = dataset_path(config)
    report = on_progress or unheard
    places = index_lines(path, config, report)
    num = num_wanted(len(places), config)
    chosen = order_of(len(places), config)[:num].tolist()
    samples: list[Sample] = []
    for start in range(0, len(chosen), _AT_ONCE):
        lines = reread_lines(path, [places[i] for i in chosen[start : start + _AT_ONCE]])
        samples += _samples(lines, tokenizer, config, template_tokens)
        report(len(samples), len(chosen))
    return oversample(samples, num, config)


def _samples(
    lines: list[Line], tokenizer: Tokenizer | None, config: DatasetConfig, template_tokens: int
) -> list[Sample]:
    prompts = [_prompt(line, tokenizer, config) for line in lines]
    counts = _counts(prompts, tokenizer, template_tokens)
    per_line = needs_output_tokens(config)
    wanted = [whole_tokens(line.output_tokens) if per_line else config.output_len for line in lines]
    return [Sample(*parts) for parts in zip(prompts, counts, wanted, strict=True)]


def _prompt(line: Line, tokenizer: Tokenizer | None, config: DatasetConfig) -> Prompt:
    """What is sent: what the line has, or what the chat template makes of it."""
    given = cast("Prompt", line.messages if line.prompt is None else line.prompt)
    if tokenizer is None or config.skip_chat_template or _is_ids(given):
        return given
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else cast("Messages", given)
    return tokenizer.apply_chat_template(messages, config.chat_template_kwargs)


def _counts(prompts: Sequence[Prompt], tokenizer: Tokenizer | None, template_tokens: int) -> list[int]:
    """How many tokens the server counts; of chat messages, what they say without what a template adds to each."""
    if tokenizer is None:
        return [1] * len(prompts)
    texts = ["" if _is_ids(prompt) else _text(prompt) for prompt in prompts]
    encoded = tokenizer.encode_batch(texts, special=not template_tokens)
    return [
        len(prompt) if _is_ids(prompt) else len(ids) + template_tokens
        for prompt, ids in zip(prompts, encoded, strict=True)
    ]


def _is_ids(prompt: Prompt) -> bool:
    return isinstance(prompt, list) and isinstance(prompt[0], int)


def _text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(_said(cast(dict[str, Any], message).get("content")) for message in prompt)


def _said(content: Any) -> str:
    """A message's text: by itself, or in parts of which some may be pictures."""
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""
