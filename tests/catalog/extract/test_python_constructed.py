"""Errors that are made and handed on: found where they are made, once, and only where they are errors."""

from __future__ import annotations

import pytest

from tests.catalog.trees import record_like, records_of
from windtunnel.catalog.record import NOT_ANALYSED, Record


def made(body: str, before: str = "", **files: str) -> list[Record]:
    """The constructed records of a function with that body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    tree = {"a.py": f"{before}\ndef f(state, future, on_failed, table):\n{lines}\n"}
    tree |= {f"{name}.py": text for name, text in files.items()}
    return [record for record in records_of(tree) if record.kind == "construct"]


@pytest.mark.parametrize(
    "body",
    [
        'return ValueError(f"state is {state}")',
        'future.set_exception(ValueError(f"state is {state}"))',
        'on_failed(ValueError(f"state is {state}"))',
        'table["last"] = ValueError(f"state is {state}")',
        'yield [ValueError(f"state is {state}")]',
        'error = ValueError(f"state is {state}")\non_failed(error)',
        'return state or ValueError(f"state is {state}")',
    ],
)
def test_an_error_that_is_handed_on_has_a_record(body: str) -> None:
    (record,) = made(body)
    assert (record.type, record.text) == ("ValueError", "state is {state}")
    assert "makes it and hands it on" in record.prose.meaning[0].text


@pytest.mark.parametrize(
    "body",
    [
        'raise ValueError("a message of it")',
        'raise ValueError("a message of it") from KeyError("a")',
        'error = ValueError("a message of it")\nraise error',
        'raise (ValueError("a message of it"))',
        'raise ExceptionGroup("a message of it", [ValueError("inner")])',
        'assert state, ValueError("a message of it")',
        'ValueError("a message of it")',
        "return isinstance(state, ValueError)",
        "return ValueError",
        'return DeprecationWarning("old")',
        'return ErrorInfo("no error, but what tells of one")',
    ],
)
def test_what_is_raised_dropped_or_no_error_has_none(body: str) -> None:
    assert made(body) == []


def test_its_guards_are_told_and_who_handles_it_is_not() -> None:
    (record,) = made('if state != "DONE":\n    return TimeoutError("the transfer is not done")\nreturn None')
    assert record.prose.trigger[0].text == 'Made in `f` when `state` is not "DONE".'
    assert (record.handled, record.severity) == (NOT_ANALYSED, NOT_ANALYSED)
    assert record.sites[0].handlers == NOT_ANALYSED


def test_a_class_from_a_module_of_errors_is_one_whatever_its_name() -> None:
    errors = "class Base(Exception):\n    pass\n\n\nclass TimedOut(Base):\n    pass\n\n\nclass Facts:\n    pass\n"
    before = "from errors import Facts, TimedOut\nimport errors\n"
    (record,) = made('on_failed(TimedOut("nothing came"), Facts("no error"))', before, errors=errors)
    assert record.type == "TimedOut"
    (record,) = made('on_failed(errors.TimedOut("nothing came"), errors.Facts("none"))', before, errors=errors)
    assert record.text == "nothing came"


def test_a_class_that_is_named_like_an_error_and_is_none_is_left_out() -> None:
    assert made('return MeanError("of a sample")', "class MeanError:\n    pass\n\n") == []


def test_where_it_is_raised_with_the_same_words_those_places_count() -> None:
    tree = {
        "a.py": 'def f():\n    return ValueError("the same words")\n',
        "b.py": 'def g():\n    raise ValueError("the same words")\n',
    }
    record = record_like(records_of(tree), "the same words")
    assert (record.kind, [site.path for site in record.sites]) == ("raise", ["b.py"])
