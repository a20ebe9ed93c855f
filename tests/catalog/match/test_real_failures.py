"""Programs that really fail find the record of the statement that failed, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.match.catalogs import explained, failing

IMPORT = "from shop.orders import *; "
FOUND = [
    ("order('pen', 0)", "order", "cannot order {number} of {item}: the number must be positive"),
    ("order('pen', 9)", "take", "only {left} of {item} are left"),
    ("take('pen', 9)", "take", "only {left} of {item} are left"),
    ("pay(200_000)", "pay", "cents < 100_000"),
    ("pay(-1)", "pay", "negative amount"),
    ("pay(13)", "pay", "the unlucky price can't be paid"),
    ("log_in('')", "log_in", "only known users may order"),
    ("Cart().add('pen', 1)", "Cart.add", "the cart has this item already"),
    ("Cart().add('ink', 100)", "Cart.add", "the cart is too small for that many items"),
    ("sync('eu-1', 'loading')", "sync", "replica {replica} is not ready: state={state}"),
]
NOT_RAISED_HERE = ["take('ink', 1)", "Cart().add()", "sync()", "pay('x')", "1 / 0", "import nothing_like_this"]


@pytest.mark.parametrize(("code", "function", "template"), FOUND)
def test_what_a_statement_raised_is_found_by_its_traceback(shop: Path, code: str, function: str, template: str) -> None:
    explanation = explained(shop, failing(shop.parent, IMPORT + code))
    best = explanation.records[0]
    assert (explanation.answer, best.template) == ("found", template)
    assert best.confidence >= 0.75
    assert [site.function for site in best.sites if site.is_here] == [function]


@pytest.mark.parametrize("code", NOT_RAISED_HERE)
def test_what_the_interpreter_raised_is_no_records(shop: Path, code: str) -> None:
    explanation = explained(shop, failing(shop.parent, IMPORT + code))
    assert (explanation.found, explanation.answer, explanation.records) == (False, "not in this catalog", ())


def test_the_root_cause_comes_first_and_what_was_made_from_it_above(shop: Path) -> None:
    explanation = explained(shop, failing(shop.parent, IMPORT + "order('ink', 1)"))
    assert [(error.type, error.how, error.answer) for error in explanation.errors] == [
        ("KeyError", "", "not in this catalog"),
        ("LookupError", "direct cause", "found"),
    ]
    assert "interpreter" in explanation.errors[0].why_not
    assert [(value.expression, value.value) for value in explanation.records[0].values] == [("item", "'ink'")]


def test_an_error_of_a_library_that_is_not_indexed_is_told_so_and_the_error_above_is_found(shop: Path) -> None:
    explanation = explained(shop, failing(shop.parent, IMPORT + "read('[1,')"))
    root, above = explanation.errors
    assert (root.type, root.answer) == ("json.decoder.JSONDecodeError", "not in this catalog")
    assert "json/decoder.py" in root.why_not
    assert (above.how, explanation.records[0].template) == ("during handling", "the order is not readable")


def test_each_member_of_an_exception_group_is_found(shop: Path) -> None:
    code = """
errors = []
for call in (lambda: pay(-1), lambda: order('pen', 0), lambda: {}['x']):
    try:
        call()
    except Exception as error:
        errors.append(error)
raise ExceptionGroup('two payments', errors)
"""
    explanation = explained(shop, failing(shop.parent, IMPORT + code))
    assert {record.template for record in explanation.records} == {
        "negative amount",
        "cannot order {number} of {item}: the number must be positive",
    }
    assert [error.type for error in explanation.errors if not error.records] == ["ExceptionGroup", "KeyError"]


def test_notes_below_the_message_do_not_hide_it(shop: Path) -> None:
    code = """
try:
    sync('eu-1', 'gone')
except RuntimeError as error:
    error.add_note('while syncing\\n\\nagain')
    raise
"""
    explanation = explained(shop, failing(shop.parent, IMPORT + code))
    assert explanation.answer == "found"
    assert explanation.records[0].values[0].value == "eu-1"


def test_an_installed_package_is_found_by_the_end_of_its_path(shop: Path) -> None:
    text = failing(shop.parent, IMPORT + "pay(-1)").replace(
        str(shop.parent / "shop"), "/opt/v/lib/python3.12/site-packages"
    )
    assert explained(shop, text).records[0].template == "negative amount"


def test_lines_that_moved_since_it_was_indexed_change_nothing(shop: Path) -> None:
    text = failing(shop.parent, IMPORT + "pay(-1)")
    moved = text.replace("line ", "line 4")
    assert moved != text
    assert explained(shop, moved).records[0].template == "negative amount"
