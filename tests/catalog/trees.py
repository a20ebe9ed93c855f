"""Small source trees, and what the catalog makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from windtunnel.catalog.assemble import assemble
from windtunnel.catalog.extract import extract
from windtunnel.catalog.indexing import index
from windtunnel.catalog.record import Record
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Store


def write_tree(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def store_of(folder: Path, files: Mapping[str, str], project: str) -> Path:
    """Write a tree and index it; the store's path."""
    tree = write_tree(folder / project, files)
    path = folder / "catalog.sqlite"
    with Store.open(path, write=True) as store:
        index(open_source(str(tree)), store, project=project)
    return path


def records_of(files: Mapping[str, str], project: str = "tree") -> list[Record]:
    facts = [extract(path, text.encode()) for path, text in sorted(files.items())]
    drafts = assemble(
        facts, project=project, version="1", commit=None, indexed_at="", permalink=lambda path, start, end: None
    )
    return [draft.record() for draft in drafts]


def record_like(records: list[Record], text: str) -> Record:
    (found,) = [record for record in records if text in record.text]
    return found


# A transfer that is reached in two ways: by a worker that logs what it raises, and by a step that does not.
TRANSFERS = {
    "engine/errors.py": '''
class TransferFailed(RuntimeError):
    """A peer's memory could not be read."""

    def __init__(self, peer, state):
        super().__init__(f"transfer from {peer} failed with state={state}")
''',
    "engine/link.py": '''
from engine.errors import TransferFailed


class Link:
    def __init__(self, wrapper, peer):
        self.wrapper = wrapper
        self.peer = peer

    def wait(self, handles):
        """Wait until all transfers are over."""
        while handles:
            for handle in handles:
                state = self.wrapper.check(handle)
                if state == "DONE":
                    continue
                if state != "PROC":
                    raise TransferFailed(self.peer, state)
''',
    "engine/worker.py": """
import logging

from engine.link import Link

logger = logging.getLogger(__name__)


def run(link: Link):
    try:
        link.wait([1])
    except Exception as error:
        logger.exception("worker failed: %s", error)


def step(link: Link):
    link.wait([2])


def main(link: Link):
    step(link)
""",
    "tests/test_link.py": """
import pytest
from engine.errors import TransferFailed


def test_a_failed_transfer_is_told(link):
    with pytest.raises(TransferFailed, match="transfer from .* failed with state"):
        link.wait([3])
""",
}
