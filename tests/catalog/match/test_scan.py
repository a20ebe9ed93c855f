"""Logs are scanned in blocks of any size, and give each error once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.catalog.match.catalogs import failing
from windtunnel.catalog.match.clean import MOST_LINE_CHARACTERS
from windtunnel.catalog.match.scan import Scanner, explain_log
from windtunnel.catalog.store import Store

IMPORT = "from shop.orders import *; "


def scanned(path: Path, data: bytes, block_bytes: int) -> tuple[list[tuple[object, ...]], int]:
    with Store.open(path) as store:
        scanner = Scanner(store)
        for start in range(0, len(data), block_bytes):
            scanner.feed(data[start : start + block_bytes])
        scanner.settle()
    found = [
        (s.num_times, s.first_line, s.last_line, [(i.seen.how, i.seen.type, i.seen.message, i.answer) for i in s.chain])
        for s in scanner.sightings.values()
    ]
    return found, scanner.num_lines


@pytest.fixture(scope="module")
def log(shop: Path) -> bytes:
    """Tracebacks among lines: plain, with a prefix on each line, of groups, of two processes at once."""
    plain = failing(shop.parent, IMPORT + "order('ink', 1)")
    group = failing(shop.parent, IMPORT + "raise ExceptionGroup('all', [ValueError('the cart has this item already')])")
    other = failing(shop.parent, IMPORT + "pay(-1)")
    lines: list[str] = []
    for i in range(12):
        lines += [
            f"INFO 11-30 12:00:{i:02} [core.py:5] sold {i} pens",
            f"ERROR:shop:replica r{i} is not ready: state=gone",
        ]
        if i % 4 == 0:
            lines += [
                f"(Core pid=7) ERROR 11-30 12:00:{i:02} [core.py:99] {line}"
                for line in ["it died", *plain.splitlines()]
            ]
        if i % 4 == 1:
            lines += ["ERROR:root:oh no", *group.splitlines()]
        if i % 4 == 2:
            for one, two in zip(plain.splitlines(), other.splitlines() + [""] * 99, strict=False):
                lines += [f"(W pid=1) {one}", f"(W pid=2) {two}"]
        if i % 4 == 3:
            lines += ["thread 'main' panicked at src/main.rs:2:5:", "boom", "note: run with `RUST_BACKTRACE=1`"]
            lines += ["java.io.IOException: full", "\tat a.b.Disk.write(Disk.java:7)"]
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("block_bytes", [1, 7, 97, 1_000, 5_000])
def test_blocks_of_any_size_give_the_same(shop: Path, log: bytes, block_bytes: int) -> None:
    assert scanned(shop, log, block_bytes) == scanned(shop, log, len(log))


def test_each_error_is_told_once_with_its_count_and_lines(shop: Path, log: bytes) -> None:
    found, num_lines = scanned(shop, log, len(log))
    assert num_lines == log.count(b"\n")
    counts = {chain[0][2]: count for count, _, _, chain in found}
    assert counts["replica r0 is not ready: state=gone"] == 12
    assert counts["boom"] == 3
    assert counts["full"] == 3
    assert counts["the cart has this item already"] == 3
    keys = [(count, len(chain)) for count, _, _, chain in found if chain[0][1] == "KeyError"]
    assert sorted(keys) == [(3, 2), (3, 3)]  # with what a logger said above it, and without


def test_a_log_with_windows_line_ends_gives_the_same(shop: Path, log: bytes) -> None:
    windows = log.replace(b"\n", b"\r\n")
    assert scanned(shop, windows, 512) == scanned(shop, log, 512)


def test_bytes_that_are_no_text_break_nothing(shop: Path) -> None:
    data = b"\xff\xfe\x00\x80 noise\nERROR:shop:replica \xed\xa0\x80\xff is not ready: state=gone\n\x00\x00\n"
    (found,), _ = scanned(shop, data, 3)
    assert found[1] == 2


def test_a_line_without_end_is_bounded(shop: Path) -> None:
    data = b"x" * 20_000_000 + b"\nERROR:shop:the order is not readable\n"
    with Store.open(shop) as store:
        scanner = Scanner(store)
        for start in range(0, len(data), 1 << 20):
            scanner.feed(data[start : start + (1 << 20)])
            assert len(scanner._rest) < 8_000_000
        scanner.settle()
    assert len(scanner.sightings) == 1
    assert MOST_LINE_CHARACTERS < 1 << 20


def test_lines_that_a_logger_marks_as_information_are_no_errors(shop: Path) -> None:
    data = b"INFO:shop:a part of a replica is not ready: state=x here\n" * 5
    assert scanned(shop, data, 100)[0] == []


def test_templates_that_say_too_little_match_no_line(tmp_path: Path) -> None:
    from tests.catalog.match.catalogs import made

    path = made(
        tmp_path,
        {"a.py": 'def f(x):\n    raise ValueError(f"{x}: {x!r}")\n\n\ndef g(x):\n    raise ValueError(f"in {x}")\n'},
    )
    assert scanned(path, b"it is: in a box\n" * 4, 50)[0] == []


def test_a_log_is_explained_in_the_order_of_its_lines(shop: Path, log: bytes) -> None:
    with Store.open(shop) as store:
        explanation = explain_log([log], store)
    firsts = [error.first_line for error in explanation.errors if error.how == ""]
    assert firsts == sorted(firsts)
    assert explanation.found


def test_one_message_is_explained_without_the_package_that_scans_logs(shop: Path) -> None:
    code = f"""
import sys
sys.modules["ahocorasick_rs"] = None
from pathlib import Path
from windtunnel.catalog.match.look_up import explain
from windtunnel.catalog.store import Store
with Store.open(Path({str(shop)!r})) as store:
    assert explain("the order is not readable", store).found
assert not {{"tree_sitter", "numpy", "starlette"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
