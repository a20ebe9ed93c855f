"""What a program imports: its errors tell their record, and nothing that goes wrong here touches them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.catalog.match.catalogs import made

MARK = "windtunnel catalog: "


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("hooked"))


def ran(shop: Path, code: str, store: object = None) -> subprocess.CompletedProcess[str]:
    """Run a program that has the hooks installed and the tree on its path."""
    head = f"import windtunnel.catalog\nwindtunnel.catalog.install({str(store or shop)!r})\n"
    head += "from shop.orders import *\n"
    return subprocess.run(
        [sys.executable, "-c", head + code],
        env={"PYTHONPATH": str(shop.parent / "shop")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_an_uncaught_exception_tells_its_record_its_meaning_and_what_to_do(shop: Path) -> None:
    done = ran(shop, "order('pen', 0)")
    message, note = done.stderr.split(MARK)
    assert done.returncode == 1
    assert message.endswith("ValueError: cannot order 0 of pen: the number must be positive\n")
    assert note.splitlines()[0].endswith("(shop)")
    assert "Try: " in note


def test_each_error_of_a_chain_that_has_a_record_tells_it(shop: Path) -> None:
    done = ran(shop, "\ntry:\n    pay(-1)\nexcept Exception as error:\n    sync('a', 'b')")
    assert done.stderr.count(MARK) == 2


def test_members_of_a_group_tell_their_records(shop: Path) -> None:
    code = "\ntry:\n    pay(-1)\nexcept Exception as error:\n    raise ExceptionGroup('all', [error]) from None"
    done = ran(shop, code)
    assert done.stderr.count(MARK) == 1


def test_what_the_interpreter_raised_stays_as_it_is(shop: Path) -> None:
    done = ran(shop, "take('ink', 1)")
    assert done.stderr.endswith("KeyError: 'ink'\n")


def test_an_error_in_a_thread_tells_its_record(shop: Path) -> None:
    done = ran(shop, "import threading\nt = threading.Thread(target=pay, args=(-1,))\nt.start()\nt.join()")
    assert (done.returncode, done.stderr.count(MARK)) == (0, 1)


def test_an_error_in_a_forked_child_tells_its_record(shop: Path) -> None:
    code = """
import os, sys
try:
    pay(-1)
except Exception as error:
    sys.excepthook(type(error), error, error.__traceback__)
sys.stderr.flush()
if os.fork() == 0:
    sync('a', 'b')
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = ran(shop, code)
    assert (done.returncode, done.stderr.count(MARK)) == (1, 2)


def test_the_hook_that_was_there_before_is_called(shop: Path) -> None:
    code = "pass"
    head = "import sys\nsys.excepthook = lambda kind, error, trace: print('before', error.__notes__[0][:20])\n"
    program = f"{head}import windtunnel.catalog\nwindtunnel.catalog.install({str(shop)!r})\n{code}\n"
    program += "from shop.orders import *\npay(-1)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(shop.parent / "shop")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"before {MARK}\n"


@pytest.mark.parametrize("content", [None, b"", b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4000])
def test_a_store_that_is_missing_or_broken_leaves_the_error_as_it_is(
    shop: Path, tmp_path: Path, content: bytes | None
) -> None:
    store = tmp_path / "broken.sqlite"
    if content is not None:
        store.write_bytes(content)
    done = ran(shop, "pay(-1)", store)
    assert done.stderr.endswith("shop.errors.Refused: payment refused: negative amount (ask the bank)\n")
    assert done.stderr.count("Traceback") == 1


def test_an_error_that_cannot_be_shown_is_still_told(shop: Path) -> None:
    code = """
class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")
raise Odd
"""
    done = ran(shop, code)
    assert "Odd: <exception str() failed>" in done.stderr


def test_nothing_of_the_catalog_is_imported_before_there_is_an_error(shop: Path) -> None:
    code = """
import sys
heavy = {"sqlite3", "msgspec", "logging", "tree_sitter", "numpy", "asyncio", "windtunnel.catalog.store"}
print(sorted(heavy & set(sys.modules)))
"""
    head = f"import windtunnel.catalog\nwindtunnel.catalog.install({str(shop)!r})\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


LOGGING = """
import logging, sys
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("%(levelname)s %(error.catalog_id)s", defaults={"error.catalog_id": "-"}))
handler.formatter.formatException = lambda info: ""
handler.addFilter(windtunnel.catalog.CatalogFilter(STORE))
logging.basicConfig(handlers=[handler], level=logging.INFO)
"""


def logged(shop: Path, code: str, store: object = None) -> list[str]:
    done = ran(shop, LOGGING.replace("STORE", repr(str(store or shop))) + code)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line.strip()]


def test_errors_that_are_logged_get_the_id_of_the_exception_or_of_the_statement(shop: Path) -> None:
    code = """
try:
    pay(-1)
except Exception:
    logging.exception("it broke")
try:
    log_in("")
except PermissionError:
    pass
logging.error("nobody knows this one")
logging.info("only 3 of pen are left")
"""
    exception, statement, unknown, information = logged(shop, code)
    assert exception.startswith("ERROR ") and len(exception.split()[1]) == 16
    assert statement.startswith("ERROR ") and len(statement.split()[1]) == 16
    assert statement != exception
    assert (unknown, information) == ("ERROR -", "INFO -")


def test_the_filter_lets_everything_through_without_a_store(shop: Path, tmp_path: Path) -> None:
    code = "logging.error('%s and %s', 'only one')\nlogging.error('fine')"
    done = ran(shop, LOGGING.replace("STORE", repr(str(tmp_path / "none"))) + code)
    assert "ERROR -" in done.stdout
