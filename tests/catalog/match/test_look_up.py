"""What `explain` answers: the record, how sure it is and why; or that it is not in this catalog."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.catalog.match.catalogs import SHOP, explained, made
from windtunnel.catalog.match.look_up import explain
from windtunnel.catalog.match.told import explanation_text
from windtunnel.catalog.store import Store


def frame(path: str, function: str, source: str, line: int = 1) -> str:
    return f'Traceback (most recent call last):\n  File "{path}", line {line}, in {function}\n    {source}\n'


def test_a_bare_message_is_possible_and_never_found(shop: Path) -> None:
    explanation = explained(shop, "ValueError: cannot order -3 of pen: the number must be positive")
    best = explanation.records[0]
    assert (explanation.found, explanation.answer) == (True, "possible")
    assert [(value.expression, value.value) for value in best.values] == [("number", "-3"), ("item", "pen")]
    assert any("type is ValueError" in reason for reason in best.evidence)


def test_a_message_that_its_class_shows_in_its_own_words_is_found_whole(shop: Path) -> None:
    best = explained(shop, "shop.errors.Refused: payment refused: negative amount (ask the bank)").records[0]
    assert (best.type, best.template) == ("Refused", "negative amount")


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30 12:00:00,123 - shop - ERROR - replica eu-1 is not ready: state=gone",
        '{"error": {"message": "replica eu-1 is not ready: state=gone", "code": 500}}',
        "Caused by: replica eu-1 is not ready: state=gone",
        "replica eu-1\nis not ready:\nstate=gone",
        "\x1b[31mRuntimeError: replica eu-1 is not ready: state=gone\x1b[0m\r\n",
        "RuntimeError('replica eu-1 is not ready: state=gone')",
    ],
)
def test_what_is_around_a_message_does_not_hide_it(shop: Path, text: str) -> None:
    assert explained(shop, text).records[0].template == "replica {replica} is not ready: state={state}"


def test_a_message_that_was_cut_off_is_possible_and_less_sure(shop: Path) -> None:
    whole = explained(shop, "cannot order 0 of pen: the number must be positive").records[0]
    cut = explained(shop, "cannot order 0 of pen: the numb").records[0]
    assert cut.id == whole.id
    assert cut.confidence < whole.confidence
    assert "beginning" in cut.evidence[0]


def test_a_message_in_other_words_is_possible_and_less_sure(shop: Path) -> None:
    whole = explained(shop, "the cart is too small for that many items").records[0]
    other = explained(shop, "the shopping cart is way too small for so many items").records[0]
    assert other.id == whole.id
    assert other.confidence < whole.confidence


def test_words_of_the_interpreter_are_no_records(shop: Path) -> None:
    for text in ("list index out of range", "KeyError: 'pen'", "division by zero", "name 'x' is not defined"):
        explanation = explained(shop, text)
        assert (explanation.found, explanation.records) == (False, ())


def test_a_traceback_of_another_place_is_not_found_by_its_words(shop: Path) -> None:
    text = frame("/site-packages/other/bank.py", "pay", "raise RuntimeError(...)")
    explanation = explained(shop, text + "RuntimeError: the order is not readable\n")
    assert explanation.answer != "found"


def test_a_line_that_raises_nothing_is_the_interpreters(shop: Path) -> None:
    text = frame("/app/shop/orders.py", "order", "return table[item]") + "ValueError: something\n"
    explanation = explained(shop, text)
    assert explanation.errors[0].why_not.startswith("the interpreter")


def test_packages_of_a_traceback_that_are_not_indexed_can_be(shop: Path) -> None:
    root = "/opt/venv/lib/python3.12/site-packages/"
    text = frame(root + "my_client/http.py", "get", "raise HttpError(5)") + "my_client.HttpError: 5\n"
    explanation = explained(shop, text)
    assert explanation.to_index == ("windtunnel catalog index pip:my_client",)
    assert explanation.projects == ("shop working tree",)
    told = explanation_text(explanation)
    assert "not in this catalog" in told
    assert "windtunnel catalog index pip:my_client" in told


def test_an_assert_without_a_message_is_found_by_its_statement(shop: Path) -> None:
    text = frame("/app/shop/orders.py", "pay", "assert cents < 100_000", 999) + "AssertionError\n"
    best = explained(shop, text).records[0]
    assert (best.template, best.kind) == ("cents < 100_000", "assert")


def test_the_line_chooses_between_sites_of_one_record(tmp_path: Path) -> None:
    code = 'def f(a):\n    if a == 1:\n        raise ValueError("twice")\n    raise ValueError("twice")\n'
    path = made(tmp_path, {"two.py": code})
    for line in (3, 4):
        text = frame("two.py", "f", 'raise ValueError("twice")', line) + "ValueError: twice\n"
        (best,) = explained(path, text).records
        assert [site.start for site in best.sites if site.is_here] == [line]


def test_records_that_nothing_tells_apart_are_all_told_and_share_their_confidence(tmp_path: Path) -> None:
    classes = "class A(Exception): pass\nclass B(Exception): pass\n"
    raised = "".join(f'def {kind.lower()}():\n    raise {kind}("the door is shut")\n' for kind in "AB")
    path = made(tmp_path, {"a.py": classes + raised})
    explanation = explained(path, "the door is shut")
    assert sorted(record.type for record in explanation.records) == ["A", "B"]
    assert {record.confidence for record in explanation.records} == {0.35}
    assert all("as likely" in record.evidence[-1] for record in explanation.records)


def test_a_record_is_explained_by_its_id_and_its_beginning(shop: Path) -> None:
    best = explained(shop, "the cart has this item already").records[0]
    for text in (best.id, best.id[:8], f"  {best.id}\n"):
        assert [record.id for record in explained(shop, text).records] == [best.id]
    assert not explained(shop, "0123456789abcdef").found


def test_a_project_is_looked_in_alone(shop: Path, tmp_path: Path) -> None:
    made(tmp_path, SHOP, "first")
    path = made(tmp_path, SHOP, "second")
    for project in ("first", "second"):
        records = explained(path, "the cart has this item already", project).records
        assert {record.project for record in records} == {project}
    assert len(explained(path, "the cart has this item already").records) == 2


def test_an_error_that_comes_twice_is_told_once_and_counted(shop: Path) -> None:
    line = "ERROR:shop:the order is not readable\n"
    (error,) = explained(shop, line * 3).errors
    assert (error.count, error.first_line, error.last_line) == (3, 1, 3)


def test_lines_without_errors_are_left_out(shop: Path) -> None:
    text = "INFO:shop:welcome\nINFO:shop:sold 3 pens\nERROR:shop:the order is not readable\nINFO:shop:bye\n"
    (error,) = explained(shop, text).errors
    assert error.first_line == 3


def test_the_answer_is_published_as_it_is_documented(shop: Path) -> None:
    document = msgspec.json.decode(msgspec.json.encode(explained(shop, "the order is not readable")))
    assert document["schema"] == "explanation/1"
    assert document["found"] is True
    assert document["records"][0].keys() >= {"id", "type", "template", "sites", "confidence", "evidence"}


def test_the_text_puts_the_meaning_before_the_place_and_says_how_to_go_on(shop: Path) -> None:
    explanation = explained(shop, "replica eu-1 is not ready: state=gone")
    told = explanation_text(explanation, 80)
    parts = [
        "what it means",
        "what sets it off",
        "here state is gone",
        "what to do",
        "where",
        "windtunnel catalog show",
    ]
    positions = [told.index(part) for part in parts]
    assert positions == sorted(positions)
    assert max(map(len, told.splitlines())) <= 110


@pytest.mark.parametrize("text", ["", "\n", "\x00", "\udce9", "{", "'", "%s", "[" * 10_000, "🜁" * 100, "x" * 1_000_000])
def test_odd_texts_are_answered(shop: Path, text: str) -> None:
    explanation = explained(shop, text)
    assert not explanation.found
    assert explanation_text(explanation)


def test_an_empty_catalog_answers_that_it_is_empty(tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty.sqlite", write=True) as store:
        explanation = explain("anything", store)
    assert "empty" in explanation_text(explanation)


RUST = """
#[derive(thiserror::Error, Debug)]
pub enum RunError {
    #[error("IO error: {0}")]
    Io(#[from] std::io::Error),
}

impl Engine {
    pub fn start(&self, n: u32) {
        if n > 2 {
            panic!("cannot run {n} engines at once");
        }
    }

    pub fn read(&self) -> Result<String, RunError> {
        let text = std::fs::read_to_string("x")?;
        Ok(text)
    }
}
"""
JAVA = """
package org.example;

public class Disk {
    public Disk(int size) {
        if (size < 0) {
            throw new IllegalArgumentException("a disk of " + size + " bytes makes no sense");
        }
    }
    static class Writer {
        void write(String path) throws java.io.IOException {
            throw new java.io.IOException("the disk is full: " + path);
        }
    }
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("compiled"), {"src/run.rs": RUST, "org/example/Disk.java": JAVA}, "compiled")


BACKTRACE = "stack backtrace:\n   0: app::run::Engine::start\n             at ./src/run.rs:11:13\n"


@pytest.mark.parametrize("backtrace", ["", BACKTRACE])
def test_a_panic_of_rust_is_found_by_its_place_with_and_without_a_backtrace(compiled: Path, backtrace: str) -> None:
    text = f"thread 'main' panicked at src/run.rs:11:13:\ncannot run 7 engines at once\n{backtrace}"
    explanation = explained(compiled, text)
    assert (explanation.answer, explanation.records[0].template) == ("found", "cannot run {n} engines at once")
    assert explained(compiled, text.replace("run.rs", "walk.rs")).answer != "found"


def test_what_the_system_said_is_explained_by_what_was_made_from_it(compiled: Path) -> None:
    system = "Permission denied (os error 13)"
    explanation = explained(
        compiled, f"Error: cannot serve\n\nCaused by:\n    0: IO error: {system}\n    1: {system}\n"
    )
    root, above, _ = explanation.errors
    assert "operating system" in root.why_not
    assert (above.answer, explanation.records[0].type) == ("possible", "RunError::Io")


def test_traces_of_java_are_found_in_constructors_and_inner_classes(compiled: Path) -> None:
    text = (
        'Exception in thread "main" java.lang.IllegalArgumentException: a disk of -1 bytes makes no sense\n'
        "\tat org.example.Disk.<init>(Disk.java:7)\n"
        "Caused by: java.io.IOException: the disk is full: /data\n"
        "\tat org.example.Disk$Writer.write(Disk.java:12)\n"
    )
    explanation = explained(compiled, text)
    assert [error.answer for error in explanation.errors] == ["found", "found"]
    assert explanation.records[0].template == "the disk is full: {path}"
