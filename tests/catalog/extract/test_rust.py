"""Rust: error types, sites, guards, and what stands in tests."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from windtunnel.catalog.extract import extract
from windtunnel.catalog.extract.rust.flow import IO_ERROR, REQWEST, SERDE_JSON, error_of
from windtunnel.catalog.template import text_of

ERRORS = """
use thiserror::Error;

/// What can go wrong.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A file could not be used.
    #[error("IO error: {0}")]
    Io(#[from] std::io::Error),
    #[error("bad {name:?} at {}", .place.line)]
    Bad { name: String, place: Place },
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

pub enum OwnError { Lost(String, u32), Gone }

impl std::fmt::Display for OwnError {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            OwnError::Lost(peer, code) => write!(f, "lost {peer}: {}", code),
            Self::Gone => write!(f, "gone"),
        }
    }
}
"""


def test_enums_bring_the_messages_docs_and_causes_of_their_variants() -> None:
    classes = {each.name: each for each in extract("src/error.rs", ERRORS.encode()).classes}
    io, bad = classes["BenchError::Io"], classes["BenchError::Bad"]
    assert (text_of(io.template or ()), io.parameters, io.bases) == ("IO error: {0}", (("0", ""),), ("BenchError",))
    assert io.doc is not None and io.doc.text == "A file could not be used."
    assert io.cause is not None and (io.cause.types, io.cause.how) == (("std::io::Error",), "#[from]")
    assert [line.number for line in io.excerpt] == [8, 9]
    assert text_of(bad.template or ()) == "bad {name} at {.place.line}"
    assert [name for name, _ in bad.parameters] == ["name", "place"]
    assert text_of(classes["OwnError::Lost"].template or ()) == "lost {0}: {1}"
    assert text_of(classes["OwnError::Gone"].template or ()) == "gone"


@pytest.mark.parametrize(
    ("statement", "kind", "type_", "template"),
    [
        ('return Err(E::Config(format!("no {} in {p}", name)));', "construct", "E::Config", None),
        ('Err(anyhow!("no {name:?}"))', "construct", "anyhow!", "no {name}"),
        ('Err("only text".into())', "construct", "str", "only text"),
        ("let x = y.ok_or(crate::error::E::Missing)?;", "construct", "E::Missing", None),
        ('g().map_err(|e| E::Http(format!("http {e}")))?;', "construct", "E::Http", None),
        ("g().map_err(E::Io)?;", "construct", "E::Io", None),
        ('Err(de::Error::custom("wrong kind"))', "construct", "Error::custom", "wrong kind"),
        ('bail!("no {} left", n);', "bail", "bail!", "no {n} left"),
        ('ensure!(a > 1, "few {}", a);', "bail", "ensure!", "few {a}"),
        ("ensure!(a > 1);", "bail", "ensure!", "a > 1"),
        ('g().context("while opening")?;', "bail", "context", "while opening"),
        ('g().with_context(|| format!("opening {p}"))?;', "bail", "with_context", "opening {p}"),
        ('panic!("lost {}", x);', "panic", "panic!", "lost {x}"),
        ("unreachable!();", "panic", "unreachable!", "unreachable!()"),
        ('x.expect("must be set");', "panic", "expect", "must be set"),
        ("x.get(1).unwrap();", "panic", "unwrap", "x.get(1).unwrap()"),
        ("assert_eq!(a, b);", "assert", "assert_eq!", "a == b"),
        ('assert!(a, "no a: {}", b);', "assert", "assert!", "no a: {b}"),
        ('tracing::error!("lost {peer}");', "log", "tracing::error!", "lost {peer}"),
        ("std::process::exit(2);", "exit", "std::process::exit", "std::process::exit(2)"),
        ('let m = format!("told {x}"); bail!("{}", m); ', "bail", "bail!", "{m}"),
    ],
)
def test_an_error_has_its_kind_type_and_message(statement: str, kind: str, type_: str, template: str | None) -> None:
    site = only("src/a.rs", f"fn f() -> Result<(), E> {{ {statement} }}", template=template is not None)
    assert (site.kind, site.type) == (kind, type_)
    assert template is None or text_of(site.template or ()) == template


def test_arguments_are_there_to_be_put_into_the_variant_s_message() -> None:
    site = only("src/a.rs", 'fn f() { Err(E::Bad { name: format!("n {x}"), place }) }', template=False)
    assert [(name, text_of(value)) for name, value in site.arguments] == [("name", "n {x}"), ("place", "{place}")]


def test_an_error_that_is_only_passed_on_is_none_of_its_own() -> None:
    assert not sites("src/a.rs", "fn f() { match g() { Err(e) => return Err(e), Ok(v) => Ok(v) } }")


def test_guards_are_told_from_the_outside_in_with_their_polarity() -> None:
    code = """
#[cfg(feature = "fast")]
fn f(k: Kind) -> Result<(), E> {
    let Some(v) = k.value() else { return Err(E::None) };
    if v.is_empty() { return Ok(()); }
    ensure!(v.len() < 9, "long");
    for part in v {
        match part.kind {
            Kind::A | Kind::B => {}
            Kind::C(n) if n > 1 => return Err(E::Many),
            _ => while let Some(x) = next() { g(x).map_err(|_| E::Lost)?; },
        }
    }
    Ok(())
}
"""
    none, long, many, lost = sites("src/a.rs", code)
    first = ("cfg", True, 'feature = "fast"')
    before = [first, ("early exit", True, "let Some(v) = k.value()"), ("early exit", False, "v.is_empty()")]
    assert guards(none) == [first, ("if", False, "let Some(v) = k.value()")]
    assert guards(long) == [*before, ("assert", False, "v.len() < 9")]
    inside = [*before, ("early exit", True, "v.len() < 9"), ("for", True, "for part in v")]
    assert guards(many) == [*inside, ("case", True, "let Kind::C(n) = part.kind"), ("if", True, "n > 1")]
    assert guards(lost) == [
        *inside,
        ("case", False, "let Kind::A | Kind::B = part.kind"),
        ("while", True, "while let Some(x) = next()"),
        ("failed", True, "g(x)"),
    ]


def test_tests_raise_nothing_and_tell_what_they_expect() -> None:
    code = """
fn f() { panic!("real") }
#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "real")]
    fn breaks() { f(); panic!("of a test"); }
    #[test]
    fn matches() { assert!(matches!(g(), Err(BenchError::Io(_)))); }
}
"""
    facts = extract("src/a.rs", code.encode())
    assert [text_of(site.template or ()) for site in facts.raises] == ["real"]
    assert [(e.type, e.pattern) for e in facts.expectations] == [("panic!", "real"), ("BenchError::Io", "")]


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("std::fs::create_dir_all(&dir)", IO_ERROR),
        ("fs::File::open(path)", IO_ERROR),
        ("tokio::fs::metadata(&p).await", IO_ERROR),
        ("file.write_all(b.as_bytes())", IO_ERROR),
        ("OpenOptions::new().append(true).open(p)", IO_ERROR),
        ("TcpStream::connect(addr).await", IO_ERROR),
        ("serde_json::to_string(&x)", SERDE_JSON),
        ("client.get(url).send().await", REQWEST),
        ("s.parse::<u32>()", "std::num::ParseIntError"),
        ("std::fs::read(p).ok()", ""),
        ("File::open(p).map_err(E::Open)", ""),
        ('File::open(p).context("x")', ""),
        ("load(p)", "?load"),
        ("self.config.load(p).await", "?load"),
    ],
)
def test_what_an_operand_fails_with_is_told_where_it_is_known(expression: str, error: str) -> None:
    assert error_of(expression) == error


@pytest.mark.parametrize(
    "code", ["", "fn", "fn f( {", 'macro_rules! m { () => { bail!("x") } }', "\xff\x00", "{" * 3000]
)
def test_broken_code_is_no_reason_to_fail(code: str) -> None:
    extract("src/a.rs", code.encode("latin-1"))
