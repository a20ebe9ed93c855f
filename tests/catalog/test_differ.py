"""What errors two versions differ in, each kind of difference by itself and all of them together."""

from __future__ import annotations

import msgspec
import pytest

from tests.catalog.trees import TRANSFERS, records_of
from windtunnel.catalog.differ import Difference, diff, markdown

CODE = """
import logging

logger = logging.getLogger(__name__)


def take(queue, size):
    if queue.closed:
        raise RuntimeError("the queue is closed, nothing can be taken")
    if size > 10:
        raise ValueError(f"a batch of {size} is too large for this queue")


def step(queue):
    take(queue, 3)
"""


def between(before: dict[str, str], after: dict[str, str]) -> Difference:
    return diff(records_of(before, "one"), records_of(after, "other"))


def edited(was: str, now: str) -> Difference:
    assert was in CODE
    return between({"a.py": CODE}, {"a.py": CODE.replace(was, now)})


def kinds(found: Difference) -> dict[str, int]:
    every = {name: getattr(found, name) for name in found.__struct_fields__ if name != "schema"}
    return {name: len(entries) for name, entries in every.items() if entries}


def test_the_same_code_has_no_difference_whatever_its_project_lines_and_names_of_variables() -> None:
    found = between({"a.py": CODE}, {"a.py": "import os\n\n" + CODE.replace("{size}", "{ size }")})
    assert kinds(found) == {} and found.is_empty
    assert markdown(found, "a", "b") == "# Errors from a to b\n\nNo difference.\n"


def test_a_new_error_is_added_and_one_that_is_gone_removed() -> None:
    more = CODE + "\n\ndef more():\n    raise KeyError('entirely fresh')\n"
    there, back = between({"a.py": CODE}, {"a.py": more}), between({"a.py": more}, {"a.py": CODE})
    assert kinds(there) == {"added": 1} and kinds(back) == {"removed": 1}
    for named in (*there.added, *back.removed):
        assert (named.type, named.text, named.path, named.line) == ("KeyError", "entirely fresh", "a.py", 19)


def test_an_edited_message_is_proposed_as_reworded() -> None:
    found = edited("nothing can be taken", "so nothing is taken")
    assert kinds(found) == {"reworded": 1}
    assert found.reworded[0].was == "the queue is closed, nothing can be taken"
    assert found.reworded[0].now == "the queue is closed, so nothing is taken"


def test_another_message_altogether_is_no_rewording() -> None:
    assert kinds(edited("the queue is closed, nothing can be taken", "try again")) == {"added": 1, "removed": 1}


def test_the_same_message_of_another_type_is_told_as_that() -> None:
    found = edited("raise ValueError(", "raise OverflowError(")
    assert kinds(found) == {"retyped": 1}
    assert (found.retyped[0].was, found.retyped[0].now) == ("ValueError", "OverflowError")


def test_a_condition_that_changed_is_told_without_those_that_did_not() -> None:
    found = edited("size > 10", "size > queue.most")
    assert kinds(found) == {"guards": 1}
    assert (found.guards[0].was, found.guards[0].now) == ("size > 10", "size > queue.most")
    found = edited("    if size > 10:\n", "    if queue.full:\n        return\n    if size > 10:\n")
    assert (found.guards[0].was, found.guards[0].now) == ("", "not queue.full")


def test_the_order_of_conditions_is_no_difference() -> None:
    code = "def f(a, b):\n    if {}:\n        return\n    if {}:\n        return\n    raise ValueError('not one')\n"
    assert kinds(between({"a.py": code.format("a", "b")}, {"a.py": code.format("b", "a")})) == {}


def test_an_error_in_another_file_or_function_is_moved_and_its_conditions_are_still_compared() -> None:
    found = between({"a.py": CODE}, {"b.py": CODE.replace("size > 10", "size > 11"), "a.py": "x = 1\n"})
    assert kinds(found) == {"moved": 2, "guards": 1}
    assert {change.was for change in found.moved} == {"a.py in take"}
    assert {change.now for change in found.moved} == {"b.py in take"}


def test_a_tree_that_lies_in_another_folder_has_not_moved() -> None:
    inside = {f"src/{path}": code for path, code in TRANSFERS.items()}
    assert kinds(between(TRANSFERS, inside)) == kinds(between(inside, TRANSFERS)) == {}
    inside["src/engine/link.py"] = inside["src/engine/link.py"].replace('!= "PROC"', '== "ERR"')
    found = between(TRANSFERS, inside)
    assert kinds(found) == {"guards": 1} and found.guards[0].now == 'state == "ERR"'


def test_an_error_that_a_caller_begins_to_catch_is_of_another_severity() -> None:
    caught = CODE.replace(
        "    take(queue, 3)",
        "    try:\n        take(queue, 3)\n    except ValueError:\n        logger.warning('no batch')",
    )
    found = between({"a.py": CODE}, {"a.py": caught})
    assert kinds(found) == {"severities": 1}
    assert (found.severities[0].was, found.severities[0].now) == ("error", "warning")


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_compared_in_either_direction_names_the_same_pairs(swapped: bool) -> None:
    before, after = (
        {"a.py": CODE},
        {"a.py": CODE.replace("too large", "far too large").replace("RuntimeError", "OSError")},
    )
    found = between(after, before) if swapped else between(before, after)
    assert kinds(found) == {"reworded": 1, "retyped": 1}


def test_markdown_keeps_what_code_says_from_being_markup() -> None:
    odd = "def f(x):\n    raise ValueError('use `a` or ``b`` <b>now</b>\\nfor {x}')\n"
    lines = markdown(between({"a.py": CODE}, {"a.py": CODE, "b.py": odd}), "a", "b").splitlines()
    (entry,) = [line for line in lines if line.startswith("- ")]
    assert entry.startswith("- ``` ValueError: use `a` or ``b`` <b>now</b> for {x} ``` (b.py:2, ")


def test_json_of_a_difference_reads_back() -> None:
    found = edited("size > 10", "size > 11")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Difference) == found
