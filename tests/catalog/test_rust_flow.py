"""A variant with `#[from] std::io::Error`: its sites are the `?` that convert, and no others."""

from __future__ import annotations

import pytest

from tests.catalog.trees import record_like, records_of
from windtunnel.catalog.record import NOT_ANALYSED

TREE = {
    "src/error.rs": """
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
}

pub type Result<T> = std::result::Result<T, BenchError>;
""",
    "src/output.rs": """
use crate::error::{BenchError, Result};
use std::fs::File;
use std::io::Write;

pub fn save(dir: &Path, result: &Report) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let text = serde_json::to_string(result)?;
    let mut file = File::create(dir.join("result.json"))?;
    file.write_all(text.as_bytes())?;
    let size = file.metadata()?.len();
    Ok(())
}

pub fn size_of(path: &Path) -> Option<u64> {
    let found = std::fs::metadata(path).ok()?;
    Some(found.len())
}
""",
    "src/run.rs": """
use crate::error::Result;
use crate::output::save;

pub async fn fetch(client: &Client, url: &str) -> Result<String> {
    let answer = client.get(url).send().await?;
    Ok(answer.text().await?)
}

pub async fn run(client: &Client) -> Result<()> {
    let report = measure(client).await?;
    save(Path::new("out"), &report)?;
    Ok(())
}

fn setup() -> anyhow::Result<()> {
    std::fs::create_dir("x")?;
    Ok(())
}

fn spawn_all() -> Result<()> {
    let job = || { std::fs::remove_file("y")?; Ok::<(), std::io::Error>(()) };
    let raw = std::fs::read("z").map_err(|e| BenchError::Dataset(format!("z: {e}")))?;
    Ok(())
}

pub fn main() {
    if let Err(e) = block_on(run(&client)) {
        tracing::error!("Benchmark failed: {e}");
    }
}
""",
}
RECORDS = records_of(TREE)
IO = next(record for record in RECORDS if record.type == "BenchError::Io")


def test_the_sites_of_an_io_variant_are_file_operations_only() -> None:
    (site,) = IO.sites
    assert [(p.path, p.line, p.function) for p in site.propagations] == [
        ("src/output.rs", 7, "save"),
        ("src/output.rs", 9, "save"),
        ("src/output.rs", 10, "save"),
        ("src/output.rs", 11, "save"),
    ]
    assert [p.expression.partition("(")[0] for p in site.propagations] == [
        "std::fs::create_dir_all", "File::create", "file.write_all", "file.metadata"
    ]  # fmt: skip


def test_other_conversions_are_records_of_their_own() -> None:
    found = {record.type: [p.line for s in record.sites for p in s.propagations] for record in RECORDS}
    assert found["BenchError::Json"] == [8]
    assert found["BenchError::Http"] == [6, 7]
    assert found["BenchError::Dataset"] == []
    assert record_like(RECORDS, "no such dataset").text == "no such dataset: z: {e}"


def test_it_says_what_it_is_made_from_and_is_related_to_its_siblings_only() -> None:
    assert [(link.type, link.reason) for link in IO.wraps] == [("std::io::Error", "wraps")]
    assert {link.type for link in IO.related} == {"BenchError::Json", "BenchError::Http", "BenchError::Dataset"}
    assert {link.reason for link in IO.related} == {"same enum"}


def test_the_words_are_about_files_and_nothing_else() -> None:
    words = " ".join(claim.text for _, claim in IO.prose.claims())
    assert "A result or a dataset can't be read or written." in words
    assert "std::fs::create_dir_all" in words and "File::create" in words
    for other in ("JSON", "request", "NIXL", "send()"):
        assert other not in words


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.type)
def test_callers_and_handlers_are_looked_for(record: object) -> None:
    for site in record.sites:  # type: ignore[attr-defined]
        assert site.callers != NOT_ANALYSED and site.handlers != NOT_ANALYSED


def test_who_logs_it_in_the_end_is_known() -> None:
    (site,) = IO.sites
    assert site.handlers != NOT_ANALYSED
    assert [(handler.function, handler.does) for handler in site.handlers] == [("main", "logs")]
