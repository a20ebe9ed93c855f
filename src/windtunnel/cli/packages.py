"""Optional packages that a command needs."""

from __future__ import annotations

from importlib.util import find_spec

from windtunnel.errors import MissingExtra


def require_packages(feature: str, extra: str, *packages: str) -> None:
    """Raise MissingExtra for the first that is not installed; none is imported."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(feature, package, extra)
