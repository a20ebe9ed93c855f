"""Flags of commands that serve: where they listen, and who can reach that."""

from __future__ import annotations

from ipaddress import ip_address

from windtunnel.cli.flags import OURS, Flag
from windtunnel.cli.values import LISTENING_PORT, TEXT


def listening_flags(group: str, port: int) -> tuple[Flag, Flag]:
    """--host and --port."""
    return (
        Flag("--host", group, TEXT, "127.0.0.1", "The address to listen at.", OURS),
        Flag("--port", group, LISTENING_PORT, port, "The port; 0: any that is free.", OURS),
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
