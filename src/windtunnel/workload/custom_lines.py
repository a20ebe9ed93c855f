"""The file of the `custom` dataset: JSONL, read as a stream and checked line by line."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from msgspec import Struct

from windtunnel.errors import ConfigurationError, DatasetError
from windtunnel.workload.config import DatasetConfig
from windtunnel.workload.dataset_file import UTF8_MARK, raise_broken, unreadable
from windtunnel.workload.progress import Progress

_LONGEST_LINE = 64 * 2**20
_EXAMPLE = '{"prompt": "What is the capital of India?", "output_tokens": 10}'
_REMEDY = f"Each line is an object of its own, such as {_EXAMPLE}"


class Line(Struct):
    """What is taken of a line. A list is of token ids or of messages."""

    prompt: str | list[Any] | None = None
    messages: list[dict[str, Any]] | None = None
    output_tokens: int | float | str | None = None


_decoder = msgspec.json.Decoder(Line)


def index_lines(path: Path, config: DatasetConfig, report: Progress) -> array[int]:
    """Check all lines and tell where each begins, in bytes; without a shuffle, only as many as are asked for.

    Raises DatasetError, with the number of the first line that won't do, and FileError.
    """
    places = array("q")
    enough = config.num_prompts if config.num_prompts > 0 and not config.shuffle else None
    per_line = needs_output_tokens(config)
    size = path.stat().st_size
    for number, place, data in _lines(path):
        line = parse_line(path, number, data, is_first=not places)
        if per_line:
            _check_output_tokens(path, number, line)
        places.append(place)
        if len(places) % 4096 == 0:
            report(place + len(data), size)
        if len(places) == enough:
            break
    if not places:
        raise DatasetError(str(path), "it is empty", _REMEDY)
    report(size, size)
    return places


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Each line that is not blank: its number from 1, its first byte's place, its bytes."""
    try:
        with path.open("rb") as file:
            place = len(UTF8_MARK) if file.read(len(UTF8_MARK)) == UTF8_MARK else 0
            file.seek(place)
            number = 0
            while data := _read_line(path, file, number + 1):
                number += 1
                if not data.isspace():
                    yield number, place, data
                place += len(data)
    except OSError as error:
        raise unreadable(path, error) from error


def _read_line(path: Path, file: IO[bytes], number: int) -> bytes:
    data = file.readline(_LONGEST_LINE + 1)
    if len(data) > _LONGEST_LINE:
        raise DatasetError(str(path), f"the line is longer than {_LONGEST_LINE >> 20} MiB", _REMEDY, number)
    return data


def reread_lines(path: Path, places: Sequence[int]) -> list[Line]:
    """The lines at these places, which were checked before."""
    try:
        with path.open("rb") as file:
            lines = []
            for place in places:
                file.seek(place)
                lines.append(_decoder.decode(file.readline()))
            return lines
    except OSError as error:
        raise unreadable(path, error) from error
    except msgspec.DecodeError as error:
        raise DatasetError(str(path), "it was changed while it was read", "Let it be, and try again.") from error


def parse_line(path: Path, number: int, data: bytes, *, is_first: bool = False) -> Line:
    """One line, checked. Raises DatasetError with its number."""
    try:
        line = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        if is_first and data.lstrip()[:1] == b"[":
            remedy = "custom reads JSONL: `jq -c '.[]' FILE > FILE.jsonl` makes it of a JSON array."
            raise DatasetError(str(path), "it holds a JSON array", remedy, number) from error
        raise_broken(path, data, error, _REMEDY, number)
    if problem := _problem(line):
        raise DatasetError(str(path), problem, _REMEDY, number)
    return line


def _problem(line: Line) -> str | None:
    if line.prompt is None and line.messages is None:
        return "there is neither `prompt` nor `messages`"
    if line.prompt is not None and line.messages is not None:
        return "there are both `prompt` and `messages`"
    key, prompt = ("messages", line.messages) if line.prompt is None else ("prompt", line.prompt)
    if not prompt:
        return f"`{key}` is empty"
    if isinstance(prompt, str) or all(type(part) is int and part >= 0 for part in prompt):
        return None
    if not all(isinstance(part, dict) for part in prompt):
        return f"`{key}` is a list, but neither of token ids nor of messages"
    if not all(isinstance(cast(dict[str, Any], part).get("role"), str) for part in prompt):
        return f"a message of `{key}` has no `role`"
    return None


def needs_output_tokens(config: DatasetConfig) -> bool:
    """Whether lines must say how many tokens they ask for."""
    if config.output_len is not None and (config.output_len == 0 or config.output_len < -1):
        raise ConfigurationError(
            "--custom-output-len", f"{config.output_len} is no number of tokens", "Give 1 or more, or -1."
        )
    return config.output_len in (None, -1)


def _check_output_tokens(path: Path, number: int, line: Line) -> None:
    if line.output_tokens is None:
        remedy = "Add it to each line, or give one length for all with --custom-output-len."
        raise DatasetError(str(path), "there is no `output_tokens`", remedy, number)
    if whole_tokens(line.output_tokens) is None:
        problem = f"`output_tokens` is {line.output_tokens!r}, not a whole number above 0"
        raise DatasetError(str(path), problem, _REMEDY, number)


def whole_tokens(value: int | float | str | None) -> int | None:
    """A whole number above 0, also where it is written 10.0 or "10"."""
    try:
        number = float(value or 0)
    except ValueError:
        return None
    return int(number) if number >= 1 and number.is_integer() else None
