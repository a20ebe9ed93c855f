"""Rust: error types, sites, guards, and what stands in tests."""

from __future__ import annotations

import pytest

from tests.catalog.extract.reading import guards, only, sites
from windtunnel.catalog.extract import extract
from windtunnel.catalog.extract.rust.operands import FMT_ERROR, IO_ERROR, REQWEST, SERDE_JSON
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
        ("let x = y.ok_or(crate::error::E::Missing)?;", "construct", "crate::error::E::Missing", None),
        ('g().map_err(|e| E::Http(format!("http {e}")))?;', "construct", "E::Http", None),
        ("g().map_err(E::Io)?;", "construct", "E::Io", None),
        ('Err(de::Error::custom("wrong kind"))', "construct", "de::Error::custom", "wrong kind"),
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
        ('let m = format!("told {x}"); panic!("{}", m.to_string()); ', "panic", "panic!", "{m.to_string()}"),
        ('bail!("one \\\n        line");', "bail", "bail!", "one line"),
        ('bail!("a  b, {}", f(")", \',\', "x"));', "bail", "bail!", 'a  b, {f(")", \',\', "x")}'),
        ('x.expect(concat!("must ", "be set"));', "panic", "expect", "must be set"),
        ('g().wrap_err("while opening")?;', "bail", "wrap_err", "while opening"),
        ('bail!(E::Config(format!("no {p}")));', "bail", "E::Config", None),
        ("ensure!(a > 1, E::Few);", "bail", "E::Few", None),
        ('error!(target: "net", peer = %p, "lost {}", p);', "log", "error!", "lost {p}"),
        ('Err(PyError(format!("no {p}")).into_pyerr::<PyValueError>())', "construct", "PyError", "no {p}"),
        ('Err(Failed { message: format!("no {p}"), code: 3 })', "construct", "Failed", "no {p}"),
        ('{ eprintln!("no {p}"); std::process::exit(2); }', "exit", "std::process::exit", "no {p}"),
    ],
)
def test_an_error_has_its_kind_type_and_message(statement: str, kind: str, type_: str, template: str | None) -> None:
    site = only("src/a.rs", f"fn f() -> Result<(), E> {{ {statement} }}", template=template is not None)
    assert (site.kind, site.type) == (kind, type_)
    assert template is None or text_of(site.template or ()) == template


def test_arguments_are_there_to_be_put_into_the_variant_s_message() -> None:
    site = only("src/a.rs", 'fn f() { Err(E::Bad { name: format!("n {x}"), place }) }', template=False)
    assert [(name, text_of(value)) for name, value in site.arguments] == [("name", "n {x}"), ("place", "{place}")]


@pytest.mark.parametrize("statement", ["std::process::exit(0);", "Err(NodeId::FALSE)", "error!(peer = %p);"])
def test_what_makes_no_error_is_no_site(statement: str) -> None:
    assert not sites("src/a.rs", f"fn f() {{ {statement} }}")


@pytest.mark.parametrize("type_", ["E", "&mut E", "&'a mut E<'a>", "crate::error::E"])
def test_self_is_named(type_: str) -> None:
    site = only(
        "src/a.rs", f"impl X for {type_} {{ fn f() -> Result<(), Self> {{ Err(Self::Gone) }} }}", template=False
    )
    assert site.type == "E::Gone"


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


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("open(p).unwrap_or_else(|e| panic!(\"no\"));", [("failed", True, "open(p)")]),
        ("map.get(k).unwrap_or_else(|| panic!(\"no\"));", [("none", True, "map.get(k)")]),
        ("map.get(k).expect(\"no\");", [("none", True, "map.get(k)")]),
        ("path.file_name().and_then(|n| n.to_str()).context(\"no\")?;",
         [("failed", True, "path.file_name().and_then(|n| n.to_str())")]),
        ('load(p)?.expect("no");', [("none", True, "load(p)?")]),
        ("if cfg!(unix) { panic!(\"no\") }", [("cfg", True, "unix")]),
        ("if !cfg!(unix) { panic!(\"no\") }", [("cfg", False, "unix")]),
    ],
)  # fmt: skip
def test_what_a_fallback_is_for_is_a_guard(statement: str, expected: list[tuple[str, bool, str]]) -> None:
    assert guards(only("src/a.rs", f"fn f() {{ {statement} }}")) == expected


def test_enums_without_a_macro_bring_what_their_display_writes() -> None:
    code = """
pub enum Kind { Lost, Full(u32), Gone { id: u8 } }
pub struct Failed { kind: Kind }
impl Display for Failed {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(match &self.kind { Kind::Lost => "it is lost", Kind::Full(n) => return write!(f, "full: {n}"),
            _ => "gone" })
    }
}
impl From<std::io::Error> for Kind { fn from(_: std::io::Error) -> Self { Kind::Lost } }
"""
    classes = {each.name: each for each in extract("src/a.rs", code.encode()).classes}
    assert {name: text_of(each.template or ()) for name, each in classes.items() if "::" in name} == {
        "Kind::Lost": "it is lost", "Kind::Full": "full: {0}", "Kind::Gone": ""
    }  # fmt: skip
    cause = classes["Kind::Lost"].cause
    assert cause is not None and (cause.types, cause.how) == (("std::io::Error",), "impl From")


def test_doc_comments_are_messages_where_displaydoc_makes_them() -> None:
    code = "use displaydoc::Display;\n#[derive(Debug, Display)]\npub enum E {\n    /// no {0} left\n    None(u8),\n}\n"
    classes = {each.name: each for each in extract("src/a.rs", code.encode()).classes}
    assert text_of(classes["E::None"].template or ()) == "no {0} left"


@pytest.mark.parametrize("attribute", ["cfg(test)", "cfg(all(test, unix))", "test", 'tokio::test(flavor = "x")'])
def test_what_is_built_for_tests_only_raises_nothing(attribute: str) -> None:
    code = f'#[{attribute}]\nfn f() {{ panic!("no") }}\n#[cfg(not(test))]\nfn g() {{ panic!("yes") }}'
    assert [text_of(site.template or ()) for site in sites("src/a.rs", code)] == ["yes"]


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


HEAD = """
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use tokio::fs as afs;
use crate::config::{self, Config};
use crate::log::File as LogFile;
use reqwest::Client;

struct Sink { out: BufWriter<File>, queue: Queue }

"""


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("std::fs::create_dir_all(&dir)", IO_ERROR),
        ("fs::File::open(path)", IO_ERROR),
        ("afs::metadata(&p).await", IO_ERROR),
        ("LogFile::open(p)", "?LogFile::open"),
        ("b.write_all(b.as_bytes())", IO_ERROR),
        ("OpenOptions::new().append(true).open(p)", IO_ERROR),
        ("TcpStream::connect(addr).await", IO_ERROR),
        ("std::process::Command::new(p).arg(a).output()", IO_ERROR),
        ("io::stdout().lock().flush()", IO_ERROR),
        ("self.out.flush()", IO_ERROR),
        ("self.queue.flush()", "?Queue.flush"),
        ("unknown.flush()", "?.flush"),
        ("writer.flush()", IO_ERROR),
        ("config.flush()", "?Config.flush"),
        ('writeln!(self.out, "x")', IO_ERROR),
        ('write!(text, "x")', FMT_ERROR),
        ('write!(unknown, "x")', ""),
        ("serde_json::to_string(&x)", SERDE_JSON),
        ("toml::from_str::<T>(&x)", "toml::de::Error"),
        ("client.get(url).send().await", REQWEST),
        ("sender.send(url).await", "?.send"),
        ("s.parse::<u32>()", "std::num::ParseIntError"),
        ("s.parse::<Kind>()", ""),
        ("tokio::spawn(f).await", "tokio::task::JoinError"),
        ("std::fs::read(p).ok()", ""),
        ("File::open(p).map_err(E::Open)", ""),
        ("File::open(p).map_err(Into::into)", IO_ERROR),
        ('File::open(p).context("x")', ""),
        ("File::open(p).map(BufReader::new)", IO_ERROR),
        ("opened", IO_ERROR),
        ("load(p)", "?load"),
        ("config::load(p)", "?config::load"),
        ("Config::load(p).await", "?Config::load"),
        ("Self::load(p)", "?Sink::load"),
        ("self.load(p)", "?Sink.load"),
    ],
)
def test_what_an_operand_fails_with_is_told_where_it_is_known(expression: str, error: str) -> None:
    code = f"""{HEAD}impl Sink {{
    fn f<W: Write>(&self, config: &Config, writer: &mut W) -> Result<(), E> {{
        let mut text = String::new();
        let opened = File::open("a");
        {expression}?;
    }}
}}"""
    (found,) = extract("src/a.rs", code.encode()).propagations
    assert (found.expression, found.error) == (expression, error)


def test_a_variable_is_what_it_is_bound_to_there() -> None:
    code = """
fn f(out: &mut File) {
    out.flush()?;
    let out = Queue::new();
    out.flush()?;
    if let Some(out) = other { out.flush()?; }
    for out in all { out.flush()?; }
    match x { Some(out) => out.flush()?, None => {} }
    { let out = BufWriter::new(y); out.flush()?; }
}
"""
    found = [each.error for each in extract("src/a.rs", code.encode()).propagations]
    assert found == [IO_ERROR, "?Queue.flush", "?.flush", "?.flush", "?.flush", IO_ERROR]


def test_closures_and_async_blocks_propagate_for_themselves() -> None:
    code = "fn f() -> R { a.map(|x| x.get()?); let t = async { g().await? }; h()? }"
    assert [each.expression for each in extract("src/a.rs", code.encode()).propagations] == ["h()"]


@pytest.mark.parametrize(
    "code", ["", "fn", "fn f( {", 'macro_rules! m { () => { bail!("x") } }', "\xff\x00", "{" * 3000]
)
def test_broken_code_is_no_reason_to_fail(code: str) -> None:
    extract("src/a.rs", code.encode("latin-1"))
