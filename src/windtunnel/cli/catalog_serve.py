"""`windtunnel catalog serve`: the catalog's pages and API."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from windtunnel.cli.catalog_flags import GROUP, GROUPS, STORE, open_store, store_path
from windtunnel.cli.console import tell_note
from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.listening import is_loopback, listening_flags
from windtunnel.cli.parser import CommandParser
from windtunnel.cli.values import NAME
from windtunnel.errors import EXIT_OK, MissingExtra

_SUMMARY = """\
Serve the catalog: pages to search, read and compare errors, and the same as JSON. Ctrl-C ends it.

  windtunnel catalog serve
  curl http://127.0.0.1:8017/api/errors?q=timeout

Nobody but this machine reaches it, unless --host names an address that others do."""

_FLAGS = (
    *listening_flags(GROUP, 8017),
    Flag(
        "--allow-host", GROUP, NAME, None, "Names under which it may be asked, beside localhost and addresses; of a "
        "proxy, or of this machine.", OURS, nargs="+",
    ),
    STORE,
)  # fmt: skip


def parser() -> CommandParser:
    """Of this command's flags."""
    return CommandParser("catalog serve", _SUMMARY, _FLAGS, GROUPS)


def run(arguments: Sequence[str]) -> int:
    """Serve until it is interrupted; the exit code."""
    values = parser().parse(arguments).values
    try:
        from windtunnel.catalog.web.serving import serve
    except ImportError as error:
        raise MissingExtra("serving pages", error.name or "starlette", "catalog") from error
    with open_store(values):
        pass  # one that is missing or broken is told now
    if not is_loopback(values.host):
        tell_note(f"{values.host} may be reached from other machines; nothing asks them who they are")
    serve(store_path(values), values.host, values.port, hosts=values.allow_host or (), ready=_tell_address)
    return EXIT_OK


def _tell_address(address: str) -> None:
    sys.stdout.write(f"serving the catalog at {address}\n")
    sys.stdout.flush()
