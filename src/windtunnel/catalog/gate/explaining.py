"""Asks an OpenAI-compatible endpoint to explain records, one request each, and keeps what gets through the gate."""

from __future__ import annotations

import json
import os
import re
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from time import sleep
from typing import Any

import msgspec

from windtunnel.catalog.gate.pack import Pack, make_pack
from windtunnel.catalog.gate.verdict import Verdict, check
from windtunnel.catalog.record import Citation, Claim, Prose, Record
from windtunnel.catalog.source import Source
from windtunnel.catalog.store import Store
from windtunnel.catalog.template import literals_of
from windtunnel.errors import ExplainerError

_TIMEOUT_S = 120
_MOST_ANSWER_BYTES = 1 << 20
_TRIES = 3
_MOST_WAIT_S = 20
_MOST_CLAIMS = 24
_FIELDS = ("meaning", "trigger", "situations", "solutions")

_ASK = """\
Explain one error of a program to an engineer who has just met it. Use only the source lines below; they are all of the
code that has to do with this error. Answer with one JSON object and nothing else:
{{"id": "{id}", "nonce": "{nonce}", "claims": [{{"field": "meaning|trigger|situations|solutions",
"text": "one sentence", "citations": [{{"path": "…", "start": 1, "end": 1}}], "code": null}}]}}
Each claim is one sentence and cites the lines that bear it out. Every name, flag, number and quoted text in it stands
in the cited lines. A claim of the field trigger cites the condition and keeps its sense. Put code into backticks.
Speak of no other error.

Error: {type}: {text}
"""


class _Claim(msgspec.Struct):
    field: str
    text: str
    citations: list[Citation] = []
    code: str | None = None


class _Answer(msgspec.Struct):
    id: str = ""
    nonce: str = ""
    claims: list[_Claim] = []


@dataclass
class Explained:
    """What became of the records that were asked about."""

    num_records: int = 0
    num_explained: int = 0
    """Of which something was kept."""
    counts: dict[str, int] = field(default_factory=dict)
    """Claims that were kept, and that each rule refused."""
    failures: list[str] = field(default_factory=list)


def explain_records(
    store: Store,
    source: Source,
    project: str,
    ids: Iterable[str],
    url: str,
    model: str,
    *,
    on_progress: Callable[[str, Verdict | None], None] = lambda record_id, verdict: None,
) -> Explained:
    """Explain records and store what is kept, one by one: a run that is cut off keeps what it has done.

    The key is OPENAI_API_KEY of the environment. Raises ExplainerError where the endpoint can't be used at all.
    """
    done = Explained()
    for record_id in ids:
        record = store.record(record_id)
        pack = make_pack(record, source.read, secrets.token_hex(8))
        done.num_records += 1
        try:
            verdict = judged(ask(pack, url, model), pack, _others(store, record))
        except ExplainerError as error:
            if done.num_records == 1 and not _may_pass(error):
                raise
            done.failures.append(f"{record_id}: {error.message}")
            on_progress(record_id, None)
            continue
        for rule, count in verdict.counts.items():
            done.counts[rule] = done.counts.get(rule, 0) + count
        if verdict.kept:
            done.num_explained += 1
            _keep(store, record, verdict, model, project)
        on_progress(record_id, verdict)
    return done


def _may_pass(error: ExplainerError) -> bool:
    """Whether the next request may fare better."""
    return "answer" in error.problem


def judged(answer: str, pack: Pack, others: Iterable[str]) -> Verdict:
    """Read an answer and put its claims to the gate. Raises ExplainerError where it can't be read."""
    read = _read(answer)
    claims = [
        (each.field, Claim(" ".join(each.text.split()), tuple(each.citations), "model", each.code))
        for each in read.claims[:_MOST_CLAIMS]
        if each.field in _FIELDS and each.text.strip()
    ]
    if (read.id, read.nonce) != (pack.id, pack.nonce):
        verdict = check((), pack)
        return verdict._replace(refused=tuple(_misplaced(field, claim) for field, claim in claims))
    return check(claims, pack, tuple(others))


def _misplaced(field_: str, claim: Claim) -> Any:
    from windtunnel.catalog.gate.verdict import Refused

    return Refused(field_, claim, "identity", "the answer gives back another id or nonce")


def _read(answer: str) -> _Answer:
    """The JSON object of an answer, whatever stands around it."""
    inside = re.search(r"\{.*\}", answer, re.DOTALL)
    try:
        return msgspec.json.decode(inside[0] if inside else answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ExplainerError("the endpoint", f"its answer can't be read: {error}", "Try a larger model.") from error


def _others(store: Store, record: Record) -> list[str]:
    """Literals of messages that are raised beside this one, and do not belong to its chain."""
    chain = {link.id for link in (*record.wraps, *record.wrapped_by)} | {record.id}
    own = " ".join(literals_of(record.template))
    names = {(site.path.rpartition("/")[2], site.function) for site in record.sites}
    found = [near for name, function in names for near in store.by_place(name, function)]
    near_ids = {link.id for link in record.related}
    found += [match for match in store.matchables(record.project) if match.id in near_ids] if near_ids else []
    texts = {part.strip() for near in found if near.id not in chain for part in literals_of(near.template)}
    return [text for text in texts if text not in own]


def _keep(store: Store, record: Record, verdict: Verdict, model: str, project: str) -> None:
    """Model's claims stand first, what the code says stays behind them."""
    by_field = {name: tuple(claim for field_, claim in verdict.kept if field_ == name) for name in _FIELDS}
    merged = {name: by_field[name] + getattr(record.prose, name) for name in _FIELDS}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    provenance = msgspec.structs.replace(
        record.provenance,
        model=model,
        explained_at=now,
        checked=verdict.counts,
        slice_ratio=round(verdict.slice_ratio, 3),
    )
    store.put_explanation(record.id, Prose(**merged), provenance, project=project)


# --- the endpoint -----------------------------------------------------------------------------------------------------


def prompt_of(pack: Pack) -> str:
    """What is asked about a record: its pack, line by line."""
    lines = [_ASK.format(id=pack.id, nonce=pack.nonce, type=pack.type, text=pack.text)]
    for each in pack.slices:
        lines.append(f"{each.role}, {each.path}:")
        lines += [f"{line.number:6} {line.text}" for line in each.lines]
        lines.append("")
    return "\n".join(lines)


def ask(pack: Pack, url: str, model: str) -> str:
    """The answer's text. Raises ExplainerError."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt_of(pack)}],
        "temperature": 0,
        "max_tokens": 2000,
    }
    request = urllib.request.Request(
        f"{url.rstrip('/').removesuffix('/v1')}/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", **_key()}, method="POST",
    )  # fmt: skip
    for attempt in range(1, _TRIES + 1):
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                return _content(url, response.read(_MOST_ANSWER_BYTES + 1))
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503) or attempt == _TRIES:
                raise _failed(url, f"it answered with status {error.code}: {error.read(300)!r}") from error
            sleep(min(_seconds(error.headers.get("Retry-After")), _MOST_WAIT_S))
        except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
            raise _failed(url, f"it can't be reached: {error}") from error
    raise AssertionError("the last try returns or raises")


def _key() -> dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text or 1))
    except ValueError:
        return 1.0


def _content(url: str, body: bytes) -> str:
    if len(body) > _MOST_ANSWER_BYTES:
        raise _failed(url, "its answer is larger than a megabyte")
    try:
        return str(json.loads(body)["choices"][0]["message"]["content"] or "")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise _failed(url, f"its answer is no chat completion: {body[:200]!r}") from error


def _failed(url: str, problem: str) -> ExplainerError:
    remedy = "Is it an OpenAI-compatible endpoint, the model's name right, and OPENAI_API_KEY set where it wants a key?"
    return ExplainerError(url, problem, remedy)
