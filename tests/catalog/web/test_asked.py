"""What is done for a request."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from windtunnel.catalog.store import Store
from windtunnel.catalog.web.asked import Differences
from windtunnel.catalog.web.problems import Refused


def test_a_comparison_ends_with_the_request_for_it_and_is_not_kept_half_done(catalog: Path) -> None:
    differences, ended = Differences(), Event()
    versions = (("link", "1.0"), ("link", "2.0"))
    with Store.open(catalog) as store:
        ended.set()
        for _ in range(2):
            with pytest.raises(Refused, match="nobody waits"):
                differences.of(store, *versions, ended)
        found = differences.of(store, *versions, Event())
        assert len(found.added) == 5
        assert differences.of(store, *versions, ended) is found
