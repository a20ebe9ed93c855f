"""Facts → records: one for each message, however many places raise it; with its callers, handlers, tests and words."""

from __future__ import annotations

import pytest

from tests.catalog.trees import TRANSFERS, record_like, records_of
from windtunnel.catalog.record import NOT_ANALYSED, record_id
from windtunnel.catalog.template import identity_of

RECORDS = records_of(TRANSFERS)
FAILED = record_like(RECORDS, "failed with state=")


def test_the_message_is_that_of_the_class_though_it_is_made_in_another_file() -> None:
    assert (FAILED.type, FAILED.text) == ("TransferFailed", "transfer from {self.peer} failed with state={state}") or (
        FAILED.text == "transfer from {peer} failed with state={state}"
    )
    assert [(site.path, site.function) for site in FAILED.sites] == [("engine/link.py", "Link.wait")]


def test_the_trigger_keeps_both_polarities() -> None:
    (trigger,) = FAILED.prose.trigger
    assert '`state` is neither "DONE" nor "PROC"' in trigger.text
    assert {(c.path, c.start) for c in trigger.citations} >= {("engine/link.py", 15), ("engine/link.py", 17)}


def test_it_is_logged_on_one_way_and_open_on_the_other() -> None:
    (site,) = FAILED.sites
    assert site.handlers != NOT_ANALYSED and site.callers != NOT_ANALYSED
    (handler,) = site.handlers
    assert (handler.path, handler.function, handler.does, handler.catches) == (
        "engine/worker.py", "run", "logs", ("Exception",)
    )  # fmt: skip
    assert {caller.function for caller in site.callers} == {"run", "step", "main"}
    assert (FAILED.handled, FAILED.severity) == ("some", "error")
    assert "`main`" in FAILED.severity_evidence[0].text


def test_the_log_knows_what_it_tells_of() -> None:
    log = record_like(RECORDS, "worker failed")
    assert [(link.id, link.reason) for link in log.wraps if link.id] == [(FAILED.id, "logs")]
    assert [(link.id, link.reason) for link in FAILED.wrapped_by] == [(log.id, "logged by")]


def test_a_test_that_provokes_it_is_named() -> None:
    (site,) = FAILED.sites
    assert site.tests != NOT_ANALYSED
    assert [(test.path, test.function) for test in site.tests] == [
        ("tests/test_link.py", "test_a_failed_transfer_is_told")
    ]


def test_the_meaning_comes_from_the_class_s_own_words() -> None:
    assert FAILED.prose.meaning[0].text == "A peer's memory could not be read."
    assert FAILED.prose.meaning[0].origin == "doc comment"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.type)
def test_every_sentence_cites_lines_that_the_record_shows(record: object) -> None:
    for _, claim in record.prose.claims():  # type: ignore[attr-defined]
        assert claim.citations, claim
        for citation in claim.citations:
            assert record.quoted(citation) or claim.origin == "test", citation  # type: ignore[attr-defined]


def test_ids_depend_on_who_a_record_is_and_on_no_path_or_line() -> None:
    moved = {path.replace("link.py", "links.py"): "\n\n" + text.replace("engine.link", "engine.links")
             for path, text in TRANSFERS.items()}  # fmt: skip
    assert record_like(records_of(moved), "failed with state=").id == FAILED.id
    assert FAILED.id == record_id("tree", "python", "TransferFailed", FAILED.template)
    renamed = {path: text.replace("state", "outcome") for path, text in TRANSFERS.items()}
    other = record_like(records_of(renamed), "failed with outcome=")
    assert other.id != FAILED.id and identity_of(other.template) != identity_of(FAILED.template)
    assert record_like(records_of(TRANSFERS, "another"), "failed with state=").id != FAILED.id


def test_sites_of_one_message_are_one_record() -> None:
    code = 'def f(x):\n    if x:\n        raise ValueError(f"no {x}")\n\ndef g(y):\n    raise ValueError(f"no {y}")\n'
    (record,) = records_of({"a.py": code})
    assert [site.function for site in record.sites] == ["f", "g"]
    assert len(record.prose.trigger) == 2


HANDLED = """
def low(x):
    if x < 0:
        raise ValueError("negative")

def quiet(x):
    try:
        low(x)
    except (TypeError, ValueError):
        pass
"""


@pytest.mark.parametrize(
    ("code", "handled", "severity"),
    [
        (HANDLED, "all", "none"),
        (HANDLED.replace("pass", "log.warning('no')"), "all", "warning"),
        (HANDLED.replace("pass", "raise"), "none", "error"),
        (HANDLED.replace("ValueError):", "KeyError):"), "none", "error"),
        (HANDLED + "\ndef loud(x):\n    low(x)\n", "some", "error"),
        ("def low():\n    raise ValueError('negative')\n", "none", "error"),
    ],
)
def test_severity_is_the_worst_of_the_ways_that_are_known(code: str, handled: str, severity: str) -> None:
    record = record_like(records_of({"a.py": code}), "negative")
    assert (record.handled, record.severity) == (handled, severity)
    assert record.severity_evidence


def test_a_method_of_an_unrelated_class_is_no_caller() -> None:
    files = {
        "a.py": "class A:\n    def go(self):\n        raise ValueError('from a')\n",
        "b.py": "class B:\n    def go(self):\n        pass\n\n    def run(self):\n        self.go()\n",
        "c.py": "from a import A\n\ndef right(a: A):\n    a.go()\n\ndef wrong(b: 'B'):\n    b.go()\n",
    }
    (site,) = record_like(records_of(files), "from a").sites
    assert site.callers != NOT_ANALYSED
    assert [caller.function for caller in site.callers] == ["right"]


def test_other_languages_say_that_callers_are_not_analysed() -> None:
    (record,) = records_of({"a.java": 'class A { void f() { throw new B("x y z"); } }'})
    (site,) = record.sites
    assert (site.callers, site.handlers, site.tests) == (NOT_ANALYSED, NOT_ANALYSED, NOT_ANALYSED)
    assert (record.handled, record.severity) == (NOT_ANALYSED, NOT_ANALYSED)


def test_prose_names_no_error_outside_of_its_chain() -> None:
    code = HANDLED + "\ndef other():\n    raise KeyError('something else')\n"
    record = record_like(records_of({"a.py": code}), "negative")
    assert "something else" not in " ".join(claim.text for _, claim in record.prose.claims())
