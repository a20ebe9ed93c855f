"""How the paced target is written, e.g. `paced:ttft=50ms,itl=10ms,tokens=2,fault=truncated`, and what the keys mean."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from windtunnel.errors import ConfigurationError
from windtunnel.units import parse_duration_s

NAME = "paced"
_SEE_HELP = "`windtunnel bench serve --embedded help` explains all keys and faults."


class PacedConfig(Struct, frozen=True, kw_only=True):
    """What the target does. `KEYS` says what each field means."""

    # pace
    ttft_s: float = 0.05
    itl_s: float = 0.01
    tokens: int = 1

    # the model
    max_model_len: int = 131072
    template: int = 5
    models: bool = True
    tokenize_status: int | None = None
    key: str | None = None
    tls: tuple[str, str] | None = None

    # oddities of bytes
    crlf: bool = False
    cr: bool = False
    pings: bool = False
    nospace: bool = False
    fields: bool = False
    multiline: bool = False
    split: int | None = None
    burst: int = 1
    bom: bool = False
    done: bool = True
    chunked: bool = True

    # oddities of chunks
    utf8: bool = False
    role: bool = True
    reasoning: int = 0
    reasoning_key: str = "reasoning_content"
    tools: bool = False
    finish: str = "last"
    usage: str = "end"
    usage_delay_s: float = 0.0
    empty_chunk: bool = False
    null_error: bool = False
    id: str = "request"

    # faults
    fault: str | None = None
    fault_ratio: float = 1.0
    fault_after: int | None = None
    retry_after: str | None = None


FAULTS: dict[str, str] = {
    "truncated": "a clean end of the body without a finish reason",
    "truncated_done": "[DONE], but no finish reason and no usage",
    "cut": "the connection is closed in the middle of a chunked body",
    "reset": "RST in mid-stream",
    "reset_before": "RST before the first byte",
    "close_before": "FIN before the first byte",
    "inband_error": "an error object in the 200 stream, then [DONE]",
    "error_only": "status 200 with a JSON error object",
    "stall": "stops for ever in mid-stream; the connection stays open",
    "stall_pings": "the same, but comments go on",
    "no_first": "the head, then nothing",
    "no_answer": "nothing at all",
    "malformed_event": "one event's JSON is cut in two; the stream goes on",
    "malformed_all": "each event's JSON is cut in two",
    "stray": "a line between two events that is no field of an event stream",
    "not_http": "the greeting of another protocol",
    "html": "status 200 with an HTML page",
    "short": "fewer tokens than were asked for, finish reason stop",
    "zero": "no token, finish reason stop",
    "one_piece": "asked for a stream, sends the whole stream at once at its end",
    "json": "asked for a stream, answers with plain JSON",
    "redirect": "307 to the same path with ?redirected=1, which serves",
    "redirect_loop": "307 to itself",
    "slow_head": "the head comes in small pieces, over the time to first token",
}
"""What `fault=` can be, beside a status from 400 to 599."""


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("write 1 or 0")
    return text == "1"


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
            raise ValueError(f"write a whole number from {least}")
        return int(text)

    return parse


def _duration(text: str) -> float:
    """Seconds. A number without a unit is refused: half of its readers would take it for milliseconds."""
    problem = "write a duration with its unit, e.g. 250ms, 1.5s, 2min; or 0"
    try:
        seconds = parse_duration_s(text)
    except ValueError:
        raise ValueError(problem) from None
    if seconds and text.strip()[-1].isdigit():
        raise ValueError(problem)
    return seconds


def _word(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"write one of {', '.join(words)}{_suggest(text, words)}")
        return text

    return parse


def _ratio(text: str) -> float:
    if not re.fullmatch(r"(0|1|[01]?\.[0-9]+)", text) or float(text) > 1:
        raise ValueError("write a share from 0 to 1")
    return float(text)


def _fault(text: str) -> str:
    if text not in FAULTS and not re.fullmatch("[45][0-9][0-9]", text):
        raise ValueError(f"write a status (400 to 599) or one of {', '.join(FAULTS)}{_suggest(text, FAULTS)}")
    return text


def _tokenize(text: str) -> int | None:
    """The status of /tokenize and /detokenize; None: they work."""
    if text in ("0", "1"):
        return 404 if text == "0" else None
    if not re.fullmatch("[45][0-9][0-9]", text):
        raise ValueError("write 1, 0 (404) or a status (400 to 599)")
    return int(text)


def _usage(text: str) -> dict[str, Any]:
    if text.startswith("late:"):
        return {"usage": "late", "usage_delay_s": _duration(text.removeprefix("late:"))}
    return {"usage": _word("end", "late:DURATION", "none", "each", "wrong")(text)}


def _tls(text: str) -> tuple[str, str]:
    certificate, colon, key = text.partition(":")
    if not (certificate and colon and key):
        raise ValueError("write CERT.pem:KEY.pem")
    return certificate, key


class Key(NamedTuple):
    """One key of the text."""

    field: str
    """The field of PacedConfig; where `parse` returns a dict, that has the fields."""
    parse: Callable[[str], Any]
    """Text to value; raises ValueError that says what may be written."""
    form: str
    doc: str

    @property
    def default(self) -> str:
        """The default as it would be written; empty where there is none."""
        value = getattr(PacedConfig(), self.field)
        if value is None:
            return ""
        if self.parse is _duration:
            return f"{value * 1e3:g}ms"
        return str(int(value)) if isinstance(value, bool) else str(value)


def _switch(field: str, doc: str) -> Key:
    return Key(field, _flag, "0|1", doc)


KEYS: dict[str, Key] = {
    "ttft": Key("ttft_s", _duration, "DURATION", "from a request's full arrival to its first token"),
    "itl": Key("itl_s", _duration, "DURATION", "from a token to the next"),
    "tokens": Key("tokens", _count(1), "N", "tokens in a chunk; from chunk to chunk it takes N × itl"),
    "max_model_len": Key("max_model_len", _count(1), "N", "longest prompt and output together, in tokens"),
    "template": Key("template", _count(0), "N", "tokens that the chat template adds to each message"),
    "models": _switch("models", "0: /v1/models answers 404"),
    "tokenize": Key("tokenize_status", _tokenize, "0|1|STATUS", "0: /tokenize and /detokenize answer 404"),
    "key": Key("key", str, "SECRET", "required as a bearer token under /v1"),
    "tls": Key("tls", _tls, "CERT.pem:KEY.pem", "serves https with this certificate and key"),
    "crlf": _switch("crlf", "lines of events end with CRLF"),
    "cr": _switch("cr", "lines of events end with CR"),
    "pings": _switch("pings", "comments before the first token and between tokens"),
    "nospace": _switch("nospace", "no space after `data:`"),
    "fields": _switch("fields", "`event:`, `id:` and `retry:` lines"),
    "multiline": _switch("multiline", "an event's JSON over several `data:` lines"),
    "split": Key("split", _count(1), "BYTES", "each write is cut into pieces of this size, sent a short while apart"),
    "burst": Key("burst", _count(1), "N", "N events in one write, at N times the interval"),
    "bom": _switch("bom", "the stream begins with a byte order mark"),
    "done": _switch("done", "0: no [DONE]"),
    "chunked": _switch("chunked", "0: the body is ended by the connection's end"),
    "utf8": _switch("utf8", "characters of two to four bytes beside each token's instant"),
    "role": _switch("role", "0: chat without the first chunk of role and empty content"),
    "reasoning": Key("reasoning", _count(0), "N", "chat: the first N tokens are reasoning"),
    "reasoning_key": Key(
        "reasoning_key", _word("reasoning_content", "reasoning"), "NAME", "reasoning_content or reasoning"
    ),
    "tools": _switch("tools", "chat: a tool call's arguments instead of content"),
    "finish": Key("finish", _word("last", "separate", "none"), "WHERE", "finish reason: last (token), separate, none"),
    "usage": Key("usage", _usage, "WHEN", "usage, if asked for: end, late:DURATION, none, each (chunk), wrong"),
    "empty_chunk": _switch("empty_chunk", "a chunk with empty `choices` in the middle"),
    "null_error": _switch("null_error", 'chunks carry `"error": null`'),
    "id": Key("id", _word("request", "changing", "none"), "KIND", "chunks' id: the request's, changing, none"),
    "fault": Key("fault", _fault, "NAME|STATUS", "goes wrong, with a status or in one of the ways under faults"),
    "fault_ratio": Key("fault_ratio", _ratio, "SHARE", "share of requests that go wrong, evenly spread"),
    "fault_after": Key("fault_after", _count(0), "N", "tokens before it goes wrong; default: half of them"),
    "retry_after": Key("retry_after", str, "VALUE", "Retry-After beside an error status"),
}
"""Each key that can be written, in the order of the help."""


def parse_paced(text: str, where: str = "--embedded") -> PacedConfig:
    """The configuration from `paced`, `paced:key=value,…` or `key=value,…`; `key` alone is `key=1`.

    Raises ConfigurationError, naming `where` the text was written.
    """
    name, pairs = _split_name(text)
    if name != NAME:
        raise ConfigurationError(
            where,
            f"unknown target {name!r}{_suggest(name, [NAME, 'engine'])}",
            f"There are: engine, {NAME}. {_SEE_HELP}",
        )
    values: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in pairs.split(","))):
        values |= _parse_pair(pair, where)
    config = PacedConfig(**values)
    if config.crlf and config.cr:
        raise ConfigurationError(where, "crlf and cr are both asked for", "Leave one out.")
    return config


def _split_name(text: str) -> tuple[str, str]:
    """The target's name, which may be left out, and the rest."""
    word = text.strip()
    end = re.search("[:=,]", word)
    if end is None:
        return (NAME, word) if word in KEYS or not word else (word, "")
    return (word[: end.start()], word[end.end() :]) if end[0] == ":" else (NAME, word)


def _parse_pair(pair: str, where: str) -> dict[str, Any]:
    word, _, value = pair.partition("=")
    key = KEYS.get(word)
    if key is None:
        raise ConfigurationError(
            where, f"unknown key {word!r}{_suggest(word, KEYS)}", f"The keys are: {', '.join(KEYS)}. {_SEE_HELP}"
        )
    try:
        parsed = key.parse(value if "=" in pair else "1")
    except ValueError as error:
        shown = "its value" if word == "key" else repr(pair)
        raise ConfigurationError(where, f"{shown}: {error}", f"{word}={key.form}: {key.doc}. {_SEE_HELP}") from None
    return parsed if isinstance(parsed, dict) else {key.field: parsed}


def _suggest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def describe_keys() -> str:
    """The keys and faults, for a help text."""
    lines = ["keys:"]
    lines += [
        f"  {f'{name}={key.form}':26} {key.doc}{f' [{key.default}]' if key.default else ''}"
        for name, key in KEYS.items()
    ]
    lines += ["", "faults:"]
    lines += [f"  {name:26} {doc}" for name, doc in FAULTS.items()]
    return "\n".join(lines)


def embedded_help() -> str:
    """All that can be written after `--embedded`."""
    return f"""\
usage: --embedded, --embedded engine:FLAG=VALUE,FLAG,…, or --embedded {NAME}:KEY=VALUE,KEY=VALUE,…

A target of our own, in a process of its own, on a free port of this machine, for as long as the run.

  --embedded                                         a small mixture-of-experts model that really computes
  --embedded engine:ranks=8,slots_per_rank=4         with the flags of `windtunnel engine`

{NAME}: an OpenAI-compatible server that sends made-up tokens at exact instants, and odd or broken answers on demand.

  --embedded {NAME}                                   first token after 50 ms, then one each 10 ms
  --embedded {NAME}:ttft=200ms,itl=20ms,tokens=2      another pace, two tokens in a chunk
  --embedded {NAME}:fault=reset,fault_ratio=0.1       a tenth of the requests goes wrong

A duration has a unit (us, ms, s, min); a key alone means KEY=1; [brackets] have the default.

{describe_keys()}
"""
