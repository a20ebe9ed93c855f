"""A variant with `#[from] std::io::Error`: its sites are the `?` that convert, and no others."""

from __future__ import annotations

import pytest

from tests.catalog.trees import record_like, records_of
from windtunnel.catalog.record import NOT_ANALYSED, Record

TREE = {
    "bench/src/error.rs": """
use thiserror::Error;

#[derive(Debug, Error)]
pub enum BenchError {
    /// A result or a dataset can't be read or written.
    #[error("IO error: {0}")]
    Io(#[from] std::io::Error),
    #[error("JSON error: {0}")]
    Json(#[from] serde_json::Error),
    #[error("request failed: {0}")]
    Http(#[from] reqwest::Error),
    #[error("no such dataset: {0}")]
    Dataset(String),
    #[error(transparent)]
    Store(#[from] store::Error),
}

pub type Result<T, E = BenchError> = std::result::Result<T, E>;
""",
    "bench/src/lib.rs": "pub mod error;\npub mod output;\npub mod run;\npub use error::{BenchError, Result};\n",
    "bench/src/output.rs": """
use crate::error::{BenchError, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};

pub struct Log { out: BufWriter<File>, sink: Sink }

impl Log {
    pub fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()?;
        self.sink.flush()?;
        Ok(())
    }
}

pub fn save(dir: &Path, result: &Report) -> Result<()> {
    fs::create_dir_all(dir)?;
    let text = serde_json::to_string(result)?;
    let mut file = File::create(dir.join("result.json"))?;
    file.write_all(text.as_bytes())?;
    let size = file.metadata()?.len();
    append(dir, size)?;
    Ok(())
}

fn append(dir: &Path, size: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(dir)?;
    write!(file, "{size}")
}

pub fn copy(mut to: impl Write, from: Option<BufWriter<File>>, path: &Path) -> crate::Result<()> {
    to.flush()?;
    if let Some(to) = other() { to.flush()?; }
    fs::read(path).map_err(BenchError::from)?;
    fs::read(path).map_err(|e| BenchError::Dataset(format!("{path}: {e}")))?;
    fs::read(path).map_err(Into::<Other>::into).ok().context("no")?;
    let text = path.try_exists().map(|is| is.to_string())?;
    Ok(())
}

pub fn size_of(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    Some(found.len())
}
""",
    "bench/src/run.rs": """
use super::error::*;
use crate::output::{save, Log};
use tokio::net::TcpStream;

pub async fn fetch(client: &reqwest::Client, url: &str) -> Result<String> {
    let answer = client.get(url).send().await?;
    sender.send(url).await?;
    Ok(answer.text().await?)
}

pub async fn run(client: &Client, log: &mut Log) -> Result<()> {
    let report = measure(client).await?;
    save(Path::new("out"), &report)?;
    log.line("saved")?;
    let peer = TcpStream::connect("127.0.0.1:1").await?;
    store::open("x")?;
    Ok(())
}

fn setup() -> anyhow::Result<()> {
    std::fs::create_dir("x")?;
    Ok(())
}

fn other() -> Result<(), OtherError> {
    std::fs::create_dir("x")?;
    Ok(())
}

fn spawn_all() -> Result<()> {
    let job = || { std::fs::remove_file("y")?; Ok::<(), std::io::Error>(()) };
    let task = async { tokio::fs::remove_file("y").await?; Ok::<(), std::io::Error>(()) };
    Ok(())
}

pub fn main() {
    if let Err(e) = block_on(run(&client, &mut log)) {
        tracing::error!("Benchmark failed: {e}");
    }
}

#[cfg(test)]
mod tests {
    fn read() -> Result<()> { std::fs::read("z")?; Ok(()) }
}
""",
    # another crate of the workspace, whose error has the same shape and other places
    "store/src/lib.rs": """
use std::io;

pub enum Error { Io(io::Error), Full }

impl From<io::Error> for Error { fn from(e: io::Error) -> Self { Self::Io(e) } }

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Io(e) => write!(f, "store: {e}"),
            Self::Full => f.write_str("the store is full"),
        }
    }
}

pub fn open(path: &str) -> Result<Store, Error> {
    let file = std::fs::File::open(path)?;
    if full(&file) { return Err(Error::Full); }
    Ok(Store { file })
}
""",
}
RECORDS = records_of(TREE)
IO = next(record for record in RECORDS if record.type == "BenchError::Io")


def made_by(record: Record) -> list[tuple[str, int, str]]:
    return [
        (each.path.removesuffix(".rs").replace("/src/", ":"), each.line, each.expression.partition("(")[0])
        for site in record.sites
        for each in site.propagations
    ]


def test_the_sites_of_an_io_variant_are_the_operations_that_fail_so_and_only_those() -> None:
    assert made_by(IO) == [
        ("bench:output", 10, "writeln!"),
        ("bench:output", 11, "self.out.flush"),
        ("bench:output", 18, "fs::create_dir_all"),
        ("bench:output", 20, "File::create"),
        ("bench:output", 21, "file.write_all"),
        ("bench:output", 22, "file.metadata"),
        ("bench:output", 23, "append"),
        ("bench:output", 33, "to.flush"),
        ("bench:output", 35, "fs::read"),
        ("bench:output", 38, "path.try_exists"),
        ("bench:run", 16, "TcpStream::connect"),  # a socket's error is an io::Error too
    ]


def test_other_conversions_are_records_of_their_own() -> None:
    found = {record.type: made_by(record) for record in RECORDS}
    assert found["BenchError::Json"] == [("bench:output", 19, "serde_json::to_string")]
    assert found["BenchError::Http"] == [("bench:run", 7, "client.get"), ("bench:run", 9, "answer.text")]
    assert found["BenchError::Store"] == [("bench:run", 17, "store::open")]
    assert found["BenchError::Dataset"] == []
    assert record_like(RECORDS, "no such dataset").text == "no such dataset: {path}: {e}"


def test_enums_of_one_name_in_two_crates_are_two() -> None:
    found = {record.text: made_by(record) for record in RECORDS if record.type.startswith("Error::")}
    assert found == {"store: {0}": [("store:lib", 18, "std::fs::File::open")], "the store is full": []}


def test_it_says_what_it_is_made_from_and_is_related_to_its_siblings_only() -> None:
    assert [(link.type, link.reason) for link in IO.wraps] == [("std::io::Error", "wraps")]
    assert {link.reason for link in IO.related} == {"same enum"}
    assert {link.type for link in IO.related} == {
        "BenchError::Json", "BenchError::Http", "BenchError::Dataset", "BenchError::Store"
    }  # fmt: skip


def test_the_words_are_about_what_converts_and_nothing_else() -> None:
    words = " ".join(claim.text for _, claim in IO.prose.claims())
    assert "A result or a dataset can't be read or written." in words
    assert "fs::create_dir_all" in words and "File::create" in words
    for other in ("JSON", "request", "NIXL", "send()", "store"):
        assert other not in words


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.type)
def test_callers_and_handlers_are_looked_for(record: Record) -> None:
    for site in record.sites:
        assert site.callers != NOT_ANALYSED and site.handlers != NOT_ANALYSED


def test_who_logs_it_in_the_end_is_known() -> None:
    (site,) = IO.sites
    assert site.handlers != NOT_ANALYSED
    assert ("main", "logs") in [(handler.function, handler.does) for handler in site.handlers]


@pytest.mark.parametrize(
    ("head", "returns"),
    [
        ("use bench::Result;", "Result<()>"),
        ("use bench::error::{BenchError as Failed};", "Result<(), Failed>"),
        ("use bench::*;", "Result<()>"),
        ("", "bench::Result<()>"),
        ("use bench::error;", "error::Result<(), error::BenchError>"),
        ("type Answer<T> = Result<T, bench::BenchError>;\nuse self::Answer as Result;", "Result<()>"),
    ],
)
def test_an_error_type_is_known_by_whatever_name_it_is_imported(head: str, returns: str) -> None:
    code = f"{head}\nfn f() -> {returns} {{\n    std::fs::read(path)?;\n    Ok(())\n}}\n"
    records = records_of({**TREE, "tool/src/main.rs": code})
    io = next(record for record in records if record.type == "BenchError::Io")
    assert [place for place in made_by(io) if place[0] == "tool:main"] == [
        ("tool:main", code.count("\n", 0, code.index("std::fs")) + 1, "std::fs::read")
    ]


@pytest.mark.parametrize(
    ("head", "returns"),
    [
        ("use std::io::Result;", "Result<()>"),
        ("use anyhow::Result;", "Result<()>"),
        ("use other::*;", "Result<()>"),
        ("pub enum BenchError { Io(std::io::Error) }", "Result<(), BenchError>"),
        ("", "Option<()>"),
        ("", "Result<(), Box<dyn std::error::Error>>"),
    ],
)
def test_a_result_of_another_type_is_none_of_it(head: str, returns: str) -> None:
    code = f"{head}\nfn f() -> {returns} {{\n    std::fs::read(path)?;\n    Ok(())\n}}\n"
    records = records_of({**TREE, "tool/src/main.rs": code})
    io = next(record for record in records if record.type == "BenchError::Io" and made_by(record))
    assert not [place for place in made_by(io) if place[0] == "tool:main"]
