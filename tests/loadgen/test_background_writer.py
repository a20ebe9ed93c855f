"""Lines are written by a thread; each one ends on the disk or among the refused, and nowhere between."""

from __future__ import annotations

from pathlib import Path

from windtunnel.loadgen.background_writer import BackgroundWriter

NUM = 500


def test_every_line_is_written_in_order(tmp_path: Path) -> None:
    writer = BackgroundWriter(str(tmp_path / "journal"))
    for number in range(NUM):
        writer.write(b"%d\n" % number)
    while writer.pending:
        pass
    assert (tmp_path / "journal").read_bytes() == b"".join(b"%d\n" % number for number in range(NUM))
    assert writer.take_refused() == ([], "")


def test_every_refused_line_is_handed_back_once_though_they_are_taken_meanwhile() -> None:
    writer = BackgroundWriter("/dev/full")
    taken: list[bytes] = []
    for number in range(NUM):
        writer.write(b"%d\n" % number)
        taken += writer.take_refused()[0]
    while writer.pending:
        taken += writer.take_refused()[0]
    lines, reason = writer.take_refused()
    assert taken + lines == [b"%d\n" % number for number in range(NUM)]
    assert reason == "No space left on device"
