"""What commands print with --json."""

from __future__ import annotations

import sys


def print_json(document: object) -> None:
    """As one indented document, to standard output."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
