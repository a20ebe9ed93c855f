"""What is true of an error passes the gate; what belongs to another, is made up or turned round does not."""

from __future__ import annotations

import pytest

from tests.catalog.trees import TRANSFERS, record_like, records_of
from windtunnel.catalog.gate.pack import make_pack
from windtunnel.catalog.gate.rules import slice_ratio, symbols_of
from windtunnel.catalog.gate.verdict import Verdict, check
from windtunnel.catalog.record import Citation, Claim, Record

FILES = {
    **TRANSFERS,
    "engine/store.py": "LIMIT = 64\n\ndef put(store, size):\n    if store.is_full:\n        return None\n"
    "    if size > LIMIT:\n        raise ValueError(f'slot of {size} bytes is larger than the store')\n",
}
RECORDS = records_of(FILES)
FAILED = record_like(RECORDS, "failed with state=")
LARGE = record_like(RECORDS, "is larger than the store")


def read(path: str) -> bytes:
    return FILES[path].encode()


def pack_of(record: Record):  # type: ignore[no-untyped-def]
    return make_pack(record, read, "nonce")


def claim(text: str, *lines: int, path: str = "engine/link.py", code: str | None = None) -> Claim:
    return Claim(text, tuple(Citation(path, line, line) for line in lines), "model", code)


def rule_for(field: str, made: Claim, record: Record = FAILED, others: tuple[str, ...] = ()) -> str:
    verdict = check([(field, made)], pack_of(record), others)
    return verdict.refused[0].rule if verdict.refused else "kept"


@pytest.mark.parametrize(
    ("field", "made"),
    [
        (
            "meaning",
            claim("`TransferFailed` says that a transfer from a peer ended in a `state` that is no success.", 18),
        ),
        ("trigger", claim('It is raised when `state` is neither "DONE" nor "PROC".', 15, 17, 18)),
        ("trigger", claim('It comes when `state` is not "PROC" any more.', 17)),
        ("situations", claim("`run` catches it as `Exception` and logs it.", 12, 13, path="engine/worker.py")),
        ("solutions", claim("Look at what `self.wrapper.check` returned for the `handle`.", 14)),
        ("solutions", claim("Wait again.", 18, code="link.wait(handles)\nprint(link.peer)")),
    ],
)
def test_what_is_true_and_cited_is_kept(field: str, made: Claim) -> None:
    if made.code:
        made = claim("Call `self.wrapper.check` again.", 14, code=made.code)
    assert rule_for(field, made) == "kept"


@pytest.mark.parametrize(
    ("field", "made", "rule"),
    [
        ("meaning", claim("A transfer failed."), "citation"),
        ("meaning", claim("`state` is wrong.", 400), "citation"),
        ("meaning", claim("`state` is wrong.", 3, path="engine/store.py"), "citation"),
        ("meaning", Claim("`state` is wrong.", (Citation("engine/link.py", 18, 2),), "model"), "citation"),
        ("meaning", claim("`comm.rebalance` must be called again.", 18), "symbols"),
        ("solutions", claim("Set `UCX_TLS` to tcp.", 18), "symbols"),
        ("solutions", claim("Start the server with --retries 5.", 18), "symbols"),
        ("meaning", claim("The limit of 4096 handles was exceeded.", 18), "symbols"),
        ("meaning", claim('The state is "ABORTED" by then.', 18), "symbols"),
        ("meaning", claim("The NixlGtoBackend lost its memory.", 18), "symbols"),
        ("solutions", claim("Check `handle`.", 13, code="reset_everything(handle)"), "sample"),
        ("solutions", claim("Check `handle`.", 13, code="if handle:"), "sample"),
        ("solutions", claim("Please check your configuration and try once more.", 18), "substance"),
        ("trigger", claim("`TransferFailed` is raised with `self.peer`.", 18), "polarity"),
        ("trigger", claim('It is raised when `state` is "PROC".', 17, 18), "polarity"),
        ("trigger", claim('It is raised as soon as `state` is "DONE".', 15), "polarity"),
    ],
)
def test_what_is_made_up_vague_or_turned_round_is_refused(field: str, made: Claim, rule: str) -> None:
    assert rule_for(field, made) == rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("It is raised when `size` is greater than `LIMIT`.", "kept"),
        ("It is raised when `size` exceeds `LIMIT`.", "kept"),
        ("It is raised when `size` is less than `LIMIT`.", "polarity"),
        ("It is raised when `size` is at most `LIMIT`.", "polarity"),
    ],
)
def test_the_direction_of_a_comparison_is_kept(text: str, rule: str) -> None:
    assert rule_for("trigger", claim(text, 6, 7, path="engine/store.py"), LARGE) == rule


def test_another_error_s_message_is_not_spoken_of() -> None:
    made = claim("After `state` was told, the slot is larger than the store.", 18)
    assert rule_for("meaning", made, others=("is larger than the store",)) == "neighbour"


def test_an_explanation_of_another_error_falls_as_a_whole_though_it_is_readdressed() -> None:
    true = list(LARGE.prose.claims())
    moved = [
        (field, Claim(each.text.replace(LARGE.text, FAILED.text), (Citation("engine/link.py", 17, 18),), "model"))
        for field, each in true
    ]
    assert not check(moved, pack_of(FAILED)).kept
    assert len(check(true, pack_of(LARGE)).kept) == len(true)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.type)
def test_what_the_code_says_passes_its_own_gate(record: Record) -> None:
    verdict = check(list(record.prose.claims()), pack_of(record))
    assert not verdict.refused, verdict.refused
    assert verdict.slice_ratio == 1.0


def test_symbols_are_names_flags_variables_numbers_and_quoted_texts() -> None:
    text = 'Pass --max-len 4096 or set VLLM_X; `a.b()` of NixlAgent gives "ERR", see some_name.'
    assert set(symbols_of(text)) == {"a.b()", "--max-len", "4096", "VLLM_X", "NixlAgent", "ERR", "some_name"}


def test_the_share_of_symbols_in_the_slice_is_told() -> None:
    claims = [claim("`state` and `nowhere_else`.", 18)]
    assert slice_ratio(claims, pack_of(FAILED)) == 0.5


def test_a_pack_holds_the_error_s_slice_of_the_code_and_no_more() -> None:
    pack = pack_of(FAILED)
    assert {each.role for each in pack.slices} >= {"function", "class", "handler", "caller", "test"}
    assert "LIMIT" not in pack.source and "__init__" not in pack.source
    assert pack.line("engine/link.py", 18) == FILES["engine/link.py"].split("\n")[17]


def test_a_trigger_tells_the_condition_that_decides() -> None:
    assert rule_for("trigger", claim("It comes from `check`, as far as `handle` goes.", 14, 15, 17)) == "polarity"


def test_an_explanation_whose_triggers_are_turned_round_is_refused_as_a_whole() -> None:
    meaning = ("meaning", claim("`TransferFailed` says that a transfer ended in a `state` that is no success.", 18))
    right = ("trigger", claim('It is raised when `state` is neither "DONE" nor "PROC".', 15, 17, 18))
    wrong = ("trigger", claim('It is raised when `state` is "PROC".', 17, 18))
    silent = ("trigger", claim("It is raised by way of `check`.", 14, 17))

    def checked(claims: list[tuple[str, Claim]]) -> Verdict:
        return check(claims, pack_of(FAILED))

    assert checked([meaning, right]).counts == {"kept": 2}
    assert checked([meaning, wrong]).counts == {"kept": 0, "polarity": 1, "trigger": 1}
    assert checked([meaning, silent]).counts == {"kept": 1, "polarity": 1}
    assert checked([meaning, wrong, right]).counts == {"kept": 2, "polarity": 1}
