"""Keeps secrets out of what is written: a server may well repeat the key that it refuses."""

from __future__ import annotations

import base64

from windtunnel.wire.http1 import parse_url

HIDDEN = "[hidden]"
_SHORTEST = 4
"""A shorter value would take half the text with it."""


class Redactor:
    """Replaces the values of given headers, and a proxy's password, wherever they occur."""

    def __init__(self, headers: list[tuple[str, str]], proxy: str | None) -> None:
        values = {part for _, value in headers for part in (value, *value.split())}
        if proxy is not None:
            url = parse_url(proxy)
            if url.user is not None:
                password = url.password or ""
                values |= {password, base64.b64encode(f"{url.user}:{password}".encode()).decode()}
        secrets = {value for value in values if len(value) >= _SHORTEST and value.lower() not in ("bearer", "basic")}
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._raw = [secret.encode() for secret in self._secrets]

    def scrub(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def scrub_line(self, line: bytes) -> bytes:
        """The same for an encoded line."""
        for secret in self._raw:
            if secret in line:
                line = line.replace(secret, HIDDEN.encode())
        return line
