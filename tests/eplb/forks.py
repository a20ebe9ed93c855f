"""The fork server that these tests' processes come from. A run has one, so what it loads is named in one place."""

from __future__ import annotations

import multiprocessing

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["tests.eplb.live.actor", "tests.eplb.transport.exporter", "tests.eplb.transport.nixl_process"]
)
