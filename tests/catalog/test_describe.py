"""What a record says in words: only what its code bears out."""

from __future__ import annotations

import pytest

from tests.catalog.trees import record_like, records_of
from windtunnel.catalog.record import NOT_ANALYSED, Record


def record_of(path: str, code: str, words: str = "") -> Record:
    return record_like(records_of({path: code}), words)


def texts(record: Record, field: str) -> list[str]:
    return [claim.text for claim in getattr(record.prose, field)]


def in_java(body: str) -> str:
    return f"class A {{ void f(boolean ready, int n, String s) {{ {body} }} }}"


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("A.java", in_java('if (!ready) throw new E("the words");'), "when `ready` is false"),
        ("a.go", 'package a\nfunc f() error { if seen[k] { return errors.New("the words") }; return nil }', "is true"),
        ("a.rs", 'fn f(all: bool) -> R { if !all { bail!("the words") } }', "when `all` is false"),
        ("a.py", "def f(names):\n    if not names:\n        raise E('the words')\n", "`names` is empty or not set"),
    ],
)
def test_a_truth_value_is_true_or_false_and_only_what_has_a_length_is_empty(path: str, code: str, said: str) -> None:
    (trigger,) = texts(record_of(path, code, "the words"), "trigger")
    assert said in trigger


def test_a_condition_that_stood_before_is_not_told_twice() -> None:
    code = 'int f(S s) {\n  if (!s.ok()) return 1;\n  s = next();\n  if (s.ok() && more) { throw E("the words"); }\n}\n'
    (trigger,) = texts(record_of("a.cc", code, "the words"), "trigger")
    assert trigger.count("`s.ok()` is true") == 1


def test_overloads_that_raise_it_alike_are_told_in_one_sentence_that_cites_them_all() -> None:
    code = "".join(f'void f({t} x) {{ if (x == null) throw new E("the words"); }}\n' for t in ("A", "B", "C"))
    record = record_of("A.java", f"class A {{ {code} }}", "the words")
    (trigger,) = record.prose.trigger
    assert {c.start for c in trigger.citations} == {site.start for site in record.sites} == {1, 2, 3}


def test_a_statement_that_every_way_leads_to_has_no_condition_claimed_away() -> None:
    (trigger,) = texts(record_of("A.java", in_java('throw new E("the words");'), "the words"), "trigger")
    assert trigger == "Raised in `A.f` whenever it gets there."


OF_A_KIND = """package a
func f() error {
    if n < 1 { return nil }
    if err := g(); err != nil && !os.IsExist(err) { return fmt.Errorf("the words: %v", err) }
    return nil
}
"""


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a.py", "def f(x):\n if x:\n  return\n try:\n  g()\n except OSError as e:\n  raise E('the words') from e\n"),
        ("a.go", OF_A_KIND),
    ],
    ids=["after an except", "a failure of a kind"],
)  # fmt: skip
def test_what_follows_from_a_failure_is_not_mended_by_another_condition(path: str, code: str) -> None:
    assert not [text for text in texts(record_of(path, code, "the words"), "solutions") if "Make sure" in text]


def test_a_value_that_is_returned_is_made_and_not_raised() -> None:
    code = "function make(x) { return new TypeError(`not ${x}, the words`); }"
    record = record_of("a.ts", code, "the words")
    assert texts(record, "meaning") == ["`make` makes it and hands it on: “not {x}, the words”."]


def test_an_error_that_stands_in_for_another_is_not_mended_by_the_other() -> None:
    code = """
def f(items, first):
    for item in items:
        if not item.ok:
            keep(first or RuntimeError("words"))
"""
    assert texts(record_of("a.py", code, "words"), "solutions") == ["Make sure that `item.ok` is set."]


def test_one_comment_of_type_and_statement_is_told_once() -> None:
    code = 'package a\n\n// ErrFull is returned when nothing fits.\nvar ErrFull = errors.New("the words")\n'
    said = texts(record_of("a.go", code, "the words"), "meaning")
    assert said[0] == "ErrFull is returned when nothing fits." and len(said) == len(set(said)) == 2


PANICS = """
fn check(n: usize) -> Result<(), E> {
    assert!(n > 1, "the asserted words");
    debug_assert!(n > 2, "the debugged words");
    Err(E::new("the returned words"))
}

fn outer() {
    match check(3) {
        Ok(_) => {}
        Err(e) => warn!("lost {e}"),
    }
}
"""


def test_what_handles_an_err_is_not_said_to_handle_a_panic() -> None:
    asserted, returned = (record_of("src/a.rs", PANICS, f"the {how} words") for how in ("asserted", "returned"))
    assert (asserted.severity, asserted.handled, asserted.sites[0].handlers) == ("fatal", "none", ())
    assert [handler.function for handler in returned.sites[0].handlers] == ["outer"]  # type: ignore[union-attr]
    assert asserted.sites[0].callers != NOT_ANALYSED


def test_a_check_of_debug_builds_says_so() -> None:
    (debugged,) = texts(record_of("src/a.rs", PANICS, "the debugged words"), "trigger")
    (asserted,) = texts(record_of("src/a.rs", PANICS, "the asserted words"), "trigger")
    assert "only where it is compiled with `debug_assertions`" in debugged and "compiled" not in asserted


ERRORS = """
#[derive(Error, Debug)]
pub enum LoadError {
    /// The file is not what it was.
    #[error("checksum of {path} differs")]
    Checksum { path: String },
    #[error("cannot read it")]
    Io(#[from] std::io::Error),
    #[error("empty {0}")]
    Empty(String),
}

fn load(path: &str) -> Result<String, LoadError> {
    let text = std::fs::read_to_string(path)?;
    if text.is_empty() { return Err(LoadError::Empty(path.to_string())); }
    Ok(text)
}
"""


def test_a_variant_that_nothing_makes_has_its_definition_for_a_site_and_says_so() -> None:
    record = record_of("src/a.rs", ERRORS, "checksum of")
    (site,) = record.sites
    assert (record.type, record.kind, site.start, site.function) == ("LoadError::Checksum", "variant", 6, "")
    assert [line.number for line in site.excerpt] == [5, 6]
    assert (site.callers, site.handlers, record.severity, record.handled) == (NOT_ANALYSED,) * 4
    assert texts(record, "meaning")[0] == "The file is not what it was."
    (trigger,) = texts(record, "trigger")
    assert trigger.startswith("Where `LoadError::Checksum` is made was not found in this source")


def test_a_variant_that_is_made_has_no_second_record() -> None:
    records = records_of({"src/a.rs": ERRORS})
    assert sorted((record.type, record.kind) for record in records) == [
        ("LoadError::Checksum", "variant"), ("LoadError::Empty", "construct"), ("LoadError::Io", "variant"),
    ]  # fmt: skip
    assert "Made by `?` in `load`" in texts(record_like(records, "cannot read"), "trigger")[0]


NESTED = """
#[derive(Error, Debug)]
pub enum ReadError {
    #[error("no header in it")]
    NoHeader,
    #[error("it has size {size}")]
    Size { size: usize },
    #[error("it was closed")]
    Closed,
    #[error("it is old")]
    Old,
    #[error(transparent)]
    Other(#[from] Inner),
}

fn read(size: usize) -> Result<(), Outer> {
    if size == 0 {
        return Err(Outer::from(ReadError::NoHeader));
    }
    parse(size).map_err(|e| match e {
        Inner::Closed => Outer::new(ReadError::Closed),
        other => wrap(ReadError::Size { size }, io::ErrorKind::Other),
    })
}

fn is_old(error: &ReadError) -> bool {
    matches!(error, ReadError::Old) || error == ReadError::Old || match error { ReadError::Old => true, _ => false }
}
"""


def test_a_variant_that_is_made_within_something_else_has_its_sites_and_what_is_only_compared_has_none() -> None:
    records = {record.type: record for record in records_of({"src/a.rs": NESTED})}
    assert {type_: record.kind for type_, record in records.items() if "ReadError" in type_} == {
        "ReadError::NoHeader": "construct", "ReadError::Size": "construct", "ReadError::Closed": "construct",
        "ReadError::Old": "variant",
    }  # fmt: skip
    assert not [type_ for type_ in records if "ErrorKind" in type_]
    (made,) = records["ReadError::NoHeader"].sites
    assert (made.start, made.function) == (18, "read") and made.guards[-1].condition == "size == 0"
    assert records["ReadError::Size"].text == "it has size {size}"


def test_an_enum_that_only_writes_a_text_is_no_error() -> None:
    code = (
        "enum Mode { Fast }\nimpl fmt::Display for Mode { fn fmt(&self, f: &mut F) -> R { match self { "
        'Mode::Fast => write!(f, "fast") } } }\n'
    )
    assert records_of({"src/a.rs": code}) == []
