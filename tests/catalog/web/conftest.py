"""A catalog of two versions of a small tree, served by the real command in a process of its own."""

from __future__ import annotations

import signal
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.catalog.trees import TRANSFERS
from tests.catalog.web.serving import serving
from windtunnel.catalog.indexing import index
from windtunnel.catalog.record import Record
from windtunnel.catalog.source import open_source
from windtunnel.catalog.store import Store

LINES = "".join(f"        'part {n} ' + x + '\\n'\n" for n in range(40))
ODD = {
    "engine/odd.py": f'''
class Odd(ValueError):
    """An <em>odd</em> value & "more"."""


def odd(x):
    if x < 1 and "<script>alert(1)</script>" in x:
        raise Odd("<script>alert('odd')</script> & 🌀 " + x)


def door(kind):
    """Open a door."""
    if kind:
        state = "open"
    else:
        state = "shut"
    try:
        return int(kind)
    except (KeyError, TypeError) as error:
        raise RuntimeError(f"door is {{state}}: {{error!r}}") from error


def long(x):
    raise LookupError(
        ""
{LINES}    )
''',
    "engine/many.py": "".join(f"def f{n}(x):\n    raise KeyError(f'many of {{x}} places')\n\n" for n in range(60)),
    "engine/Odd.java": 'class Odd { void f(int x) { if (x < 3) { throw new IllegalStateException("odd java"); } } }',
}
LATER = {
    **TRANSFERS,
    **ODD,
    "engine/errors.py": TRANSFERS["engine/errors.py"].replace("with state=", "in state="),
    "engine/link.py": TRANSFERS["engine/link.py"].replace('!= "PROC"', '== "ERR"'),
}


def wheel(path: Path, files: Mapping[str, str]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return str(path)


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    path = folder / "catalog.sqlite"
    with Store.open(path, write=True) as store:
        for version, files in (("1.0", TRANSFERS), ("2.0", LATER)):
            index(open_source(wheel(folder / f"link-{version}.whl", files)), store)
    return path


@pytest.fixture(scope="session")
def address(catalog: Path) -> Iterator[str]:
    """The server's, without a slash at its end."""
    with serving("--store", str(catalog)) as server:
        yield server.address
        assert server.end(signal.SIGTERM) == 0


@pytest.fixture(scope="session")
def records(catalog: Path) -> list[Record]:
    with Store.open(catalog) as store:
        return list(store.records("link"))
