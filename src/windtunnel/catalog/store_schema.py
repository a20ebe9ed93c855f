"""The store's tables, version by version: what a new file is made from, and how an older one is brought up."""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x57544341
"""`WTCA`, in the file's head: another program's database is not taken for a catalog."""

_V1 = """
CREATE TABLE snapshots (
  snapshot INTEGER PRIMARY KEY, project TEXT NOT NULL, version TEXT NOT NULL, is_current INTEGER NOT NULL,
  facts BLOB NOT NULL, UNIQUE (project, version)
);
CREATE TABLE files (
  snapshot INTEGER NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL, digest TEXT NOT NULL,
  PRIMARY KEY (snapshot, path)
) WITHOUT ROWID;
CREATE TABLE file_facts (path TEXT NOT NULL, digest TEXT NOT NULL, tool TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (path, digest, tool)
);
CREATE TABLE records (
  record INTEGER PRIMARY KEY, snapshot INTEGER NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL,
  type TEXT NOT NULL, text TEXT NOT NULL, kind TEXT NOT NULL, severity TEXT NOT NULL, language TEXT NOT NULL,
  path TEXT NOT NULL, line INTEGER NOT NULL, matchable BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (snapshot, id)
);
CREATE INDEX records_by_id ON records (id);
CREATE INDEX records_by_type ON records (type);
CREATE INDEX records_by_text ON records (text);
CREATE TABLE places (name TEXT NOT NULL, function TEXT NOT NULL, record INTEGER NOT NULL);
CREATE INDEX places_by_name ON places (name, function);
CREATE INDEX places_by_record ON places (record);
CREATE TABLE anchors (word TEXT NOT NULL, record INTEGER NOT NULL, PRIMARY KEY (word, record)) WITHOUT ROWID;
CREATE INDEX anchors_by_record ON anchors (record);
CREATE TABLE aliases (old TEXT NOT NULL, new TEXT NOT NULL, PRIMARY KEY (old, new)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (type, text, place, tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE grams USING fts5 (type, text, tokenize = 'trigram', detail = 'none');
"""

_V2 = """
CREATE TABLE explanations (
  project TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (project, id)
) WITHOUT ROWID;
"""

MIGRATIONS = (_V1, _V2)
"""The n-th one makes version n of n - 1. What was released is never changed here."""

VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring a file of `version` up to VERSION, wholly or not at all."""
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        marks = f"PRAGMA user_version = {number}; PRAGMA application_id = {APPLICATION_ID};"
        connection.executescript(f"BEGIN IMMEDIATE; {script} {marks} COMMIT;")
