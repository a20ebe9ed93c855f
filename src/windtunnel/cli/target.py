"""Where requests go, checked: address, endpoint, headers and keys. No text that is made here shows a secret."""

from __future__ import annotations

import re
from argparse import Namespace
from base64 import b64encode
from collections.abc import Collection, Mapping
from ipaddress import ip_address

from windtunnel.errors import ConfigurationError
from windtunnel.loadgen.config import TargetConfig
from windtunnel.wire.http1 import Url, parse_url
from windtunnel.wire.openai import ENDPOINTS, Dialect

DIALECTS: dict[str, Dialect] = {"vllm": "completions", "openai": "completions", "openai-chat": "chat"}

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WRITTEN_BY_US = ("accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")


def target_of(values: Namespace, given: Collection[str], environ: Mapping[str, str]) -> TargetConfig:
    """The target; raises ConfigurationError."""
    url = _url(values, given)
    base_url, endpoint = _join(url, _endpoint(values))
    headers = _headers(values.header or [])
    api_key = _api_key(environ)
    if any(name.lower() == "authorization" for name in headers):
        api_key = None
    elif api_key is None and url is not None and url.user is not None:
        headers["Authorization"] = _basic(url)
    return TargetConfig(
        base_url=base_url,
        embedded=values.embedded,
        endpoint=endpoint,
        dialect=DIALECTS[values.backend],
        backend=values.backend,
        insecure=values.insecure,
        proxy=_proxy(values.proxy),
        headers=headers,
        api_key=api_key,
        connect_timeout_s=values.connect_timeout_s,
        first_token_timeout_s=values.first_token_timeout_s,
        stall_timeout_s=values.stall_timeout_s,
        request_timeout_s=values.request_timeout_s,
        ready_check_timeout_s=values.ready_check_timeout_sec,
    )


def _url(values: Namespace, given: Collection[str]) -> Url | None:
    """The server's address; None where the target is embedded."""
    if values.embedded is not None:
        for key in ("base_url", "host", "port"):
            if key in given:
                flag = f"--{key.replace('_', '-')}"
                remedy = "Leave one of them out: an embedded target has an address of its own."
                raise ConfigurationError(flag, "does not go with --embedded", remedy)
        return None
    if values.base_url is None:
        return Url(parse_url(f"http://{_host(values.host)}:{values.port}").origin, "/")
    for key in ("host", "port"):
        if key in given:
            remedy = "Write the port into --base-url, or leave --base-url out."
            raise ConfigurationError(f"--{key}", "does not go with --base-url, which says it already", remedy)
    url = _parsed("--base-url", values.base_url)
    if "?" in url.target:
        raise ConfigurationError("--base-url", "holds a query", "Put the query into --endpoint: /v1/completions?key=1.")
    return url


def _host(host: str) -> str:
    """As an address has it: an IPv6 literal in brackets."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if "://" in host or "/" in host or "@" in host:
        raise ConfigurationError("--host", "is an address, not a host", "Give it as --base-url http://HOST:PORT.")
    try:
        return f"[{bare}]" if ip_address(bare).version == 6 else bare
    except ValueError:
        pass
    name, colon, port = host.partition(":")
    if colon and port.isdecimal():
        raise ConfigurationError("--host", f"{host!r} holds a port", f"Write --host {name} --port {port}.")
    if not host or not re.fullmatch(r"[\w.-]+", host):
        raise ConfigurationError("--host", f"{host!r} is no host", "Give a name, an IPv4 or an IPv6 address.")
    return host


def _parsed(flag: str, text: str) -> Url:
    try:
        return parse_url(text)
    except ValueError as error:
        remedy = f"Write {flag} http://HOST:PORT."
        if "://" not in text and "@" not in text and re.fullmatch(r"[\w.\[\]:-]+(/\S*)?", text):
            remedy = f"Did you mean {flag} http://{text}?"
        raise ConfigurationError(flag, str(error), remedy) from None


def _endpoint(values: Namespace) -> str:
    """The endpoint's path; the backend's own where none is given."""
    dialect = DIALECTS[values.backend]
    if values.endpoint is None:
        return ENDPOINTS[dialect]
    given: str = values.endpoint
    if "://" in given:
        raise ConfigurationError(
            "--endpoint", "is an address", "Split it: --base-url http://HOST:PORT --endpoint /PATH."
        )
    if not given.isascii() or re.search(r"[\x00-\x20\x7f]", given):
        raise ConfigurationError("--endpoint", "holds a space or what is not ASCII", "Write it with %-escapes.")
    path = given.partition("?")[0]
    is_chat = path.endswith("chat/completions")
    if dialect == "chat" and not is_chat:
        remedy = "Leave --endpoint out, or give --backend openai for a completions endpoint."
        raise ConfigurationError("--endpoint", f"{given} does not end in chat/completions, as openai-chat's do", remedy)
    if dialect == "completions" and is_chat:
        remedy = "Give --backend openai-chat, or leave --endpoint out."
        raise ConfigurationError("--endpoint", f"{given} is for chat; the backend is {values.backend}", remedy)
    if not path.endswith("completions"):
        remedy = f"Leave --endpoint out for {ENDPOINTS[dialect]}."
        raise ConfigurationError("--endpoint", f"{given} does not end in completions", remedy)
    return given if given.startswith("/") else f"/{given}"


def _join(url: Url | None, endpoint: str) -> tuple[str | None, str]:
    """Base address and endpoint, as vLLM joins them; an API prefix belongs to the endpoint.

    Other paths than the endpoint (/v1/models, /tokenize) are called below the base address.
    """
    if url is None:
        return None, endpoint
    path = url.target.rstrip("/")
    if path.endswith("/v1"):
        if endpoint.startswith("/v1/"):
            remedy = f"Leave /v1 out of --base-url: {url.origin}{path.removesuffix('/v1')}"
            raise ConfigurationError("--base-url", f"with {endpoint} it makes {path}{endpoint}", remedy)
        path, endpoint = path.removesuffix("/v1"), f"/v1{endpoint}"
    return f"{url.origin}{path}", endpoint


def _headers(items: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, item in enumerate(items, 1):
        name, equals, value = (part.strip() for part in item.partition("="))
        # a value is never shown: where there is no `=`, all of the item may be a secret
        if not equals:
            remedy = "Write NAME=VALUE, e.g. --header x-team=search; quote a value that has spaces."
            raise ConfigurationError("--header", f"value {number} has no = in it", remedy)
        if not _HEADER_NAME.fullmatch(name):
            remedy = "A name is made of letters, digits and dashes."
            raise ConfigurationError("--header", f"value {number} does not begin with the name of a header", remedy)
        if name.lower() in _WRITTEN_BY_US:
            raise ConfigurationError("--header", f"{name} is written by windtunnel itself", "Leave it out.")
        if not _is_header_value(value):
            remedy = "Its value has to be one line of Latin-1."
            raise ConfigurationError("--header", f"{name}'s value holds a line break or what can't be sent", remedy)
        headers[name] = value
    return headers


def _api_key(environ: Mapping[str, str]) -> str | None:
    key = environ.get("OPENAI_API_KEY", "").strip()
    if not _is_header_value(key):
        remedy = "Set it anew; a key is one line of ASCII."
        raise ConfigurationError("OPENAI_API_KEY", "holds a line break or what can't be sent in a header", remedy)
    return key or None


def _is_header_value(text: str) -> bool:
    return not re.search(r"[^\t\x20-\x7e\xa0-\xff]", text)


def _basic(url: Url) -> str:
    return "Basic " + b64encode(f"{url.user}:{url.password or ''}".encode()).decode()


def _proxy(text: str | None) -> str | None:
    if text is None:
        return None
    url = _parsed("--proxy", text)
    if url.origin.scheme != "http":
        remedy = "Give a proxy that is spoken to over http://; https targets are tunnelled through it."
        raise ConfigurationError("--proxy", "is an https address", remedy)
    if url.target != "/":
        raise ConfigurationError("--proxy", "has a path", "Write --proxy http://HOST:PORT.")
    return text
