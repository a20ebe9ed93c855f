"""Puts windtunnel's own errors into the wheel, so that `windtunnel explain` works where no source tree can be read."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogHook(BuildHookInterface):  # type: ignore[type-arg]
    """Indexes the package's source while the wheel is built. An editable installation reads it at the first look."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the catalog to the wheel's files."""
        if version == "editable":
            return
        source = Path(self.root) / "src"
        sys.path.insert(0, str(source))
        from windtunnel.catalog.indexing import index
        from windtunnel.catalog.own import own_source
        from windtunnel.catalog.store import Store

        made = Path(tempfile.mkdtemp()) / "windtunnel.sqlite"
        with Store.open(made, write=True) as store:
            index(own_source(source / "windtunnel"), store)
            store.connection.execute("PRAGMA journal_mode = DELETE")
        build_data["force_include"][str(made)] = "windtunnel/catalog/windtunnel.sqlite"
