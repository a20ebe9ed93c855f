"""Keeps secrets out of what is written: a server may well repeat the key that it refuses."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import msgspec

from windtunnel.loadgen.config import ServeConfig
from windtunnel.measure.record import Fault, Record
from windtunnel.wire.http1 import parse_url

HIDDEN = "[hidden]"
_SHORTEST = 4
"""A shorter value would take half the text with it."""


class Redactor:
    """Replaces the values of given headers, and a proxy's password, wherever they occur in words."""

    def __init__(self, headers: list[tuple[str, str]], proxy: str | None) -> None:
        values = {part for _, value in headers for part in (value, *value.split())}
        if proxy is not None:
            url = parse_url(proxy)
            if url.user is not None:
                password = url.password or ""
                values |= {password, base64.b64encode(f"{url.user}:{password}".encode()).decode()}
        secrets = {value for value in values if len(value) >= _SHORTEST and value.lower() not in ("bearer", "basic")}
        self._forms = sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)

    def scrub(self, text: str) -> str:
        """The text without secrets."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def scrub_record(self, record: Record) -> None:
        """Take them out of a record's words. Its numbers are never touched: a header may be "4821"."""
        if not self._forms:
            return
        record.text = self.scrub(record.text)
        if record.transcript is not None:
            record.transcript = self.scrub(record.transcript)
        if record.finish_reason is not None:
            record.finish_reason = self.scrub(record.finish_reason)
        record.warnings = [self._scrub_fault(fault) for fault in record.warnings]
        if record.failure is not None:
            record.failure = self._scrub_fault(record.failure)

    def _scrub_fault(self, fault: Fault) -> Fault:
        facts: dict[str, Any] = {
            name: self.scrub(value) if isinstance(value, str) else value for name, value in fault.facts.items()
        }
        return Fault(fault.code, facts)


def _forms(secret: str) -> set[str]:
    """A secret as it is, inside JSON, and as bytes that were no UTF-8; each also within quotation marks of Python."""
    sent = secret.encode("latin-1", "replace").decode("utf-8", "backslashreplace")
    plain = {secret, sent, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return plain | {repr(form)[1:-1] for form in plain}


def redact_config(config: ServeConfig) -> dict[str, Any]:
    """The configuration as it is saved: names of headers, no key, no password."""
    document: dict[str, Any] = msgspec.to_builtins(config)
    target = document["target"]
    target["headers"] = dict.fromkeys(target["headers"], "…")
    if target["embedded"]:
        target["embedded"] = re.sub(r"\bkey=[^,]*", "key=…", target["embedded"])
    target["api_key"] = "…" if target["api_key"] else None
    target["endpoint"] = target["endpoint"].partition("?")[0]
    for name in ("base_url", "proxy"):
        if target[name]:
            target[name] = str(parse_url(target[name])).rstrip("/")
    return document
