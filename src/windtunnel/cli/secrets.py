"""Secrets of a command line and environment, so that no error text shows them, whoever wrote it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence

_HIDDEN = "[hidden]"
_SHORTEST = 4
"""A shorter value would hide half the text with it."""


def known_secrets(arguments: Sequence[str], environ: Mapping[str, str]) -> set[str]:
    """The API key, the values of --header, and passwords in addresses."""
    found = {environ.get("OPENAI_API_KEY", "")}
    in_header = False
    for argument in arguments:
        value = argument
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            in_header = len(name) > 5 and "--header".startswith(name)
            if not equals:
                continue
        found |= {secret for _, secret in re.findall(r"[?&]([^=&\s]+)=([^&\s]+)", value)}  # of an address
        if in_header:
            secret = value.partition("=")[2] or value
            found |= {secret, *secret.split()}
        if match := re.search(r"[:,]key=([^,\s]+)", value):  # what an embedded target asks for
            found.add(match[1])
        if match := re.search(r"://([^/@\s]*)@", value):
            found |= {match[1], match[1].partition(":")[2], b64encode(match[1].encode()).decode()}
    return {secret for secret in found if len(secret) >= _SHORTEST}


def scrub(text: str, secrets: set[str]) -> str:
    """The text without them."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text
