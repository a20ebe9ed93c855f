"""What the tests of Rust expect to fail, and how."""

from __future__ import annotations

import re

from windtunnel.catalog.extract.rust.errors import above
from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.syntax import first_line, ordered_captures, text
from windtunnel.catalog.facts import Expectation


def expectations_of(reader: RustReader) -> tuple[Expectation, ...]:
    """`#[should_panic(expected = "…")]` and `matches!(e, Type::Variant…)`."""
    found: list[Expectation] = []
    for function in ordered_captures("rust", "(function_item) @f", reader.root).get("f", ()):
        _, attributes = above(function)
        body = function.child_by_field_name("body")
        if not reader.in_tests(function) or body is None:
            continue
        index, line = reader.function_index(body), first_line(function)
        for attribute in attributes:
            panics = re.findall(r'should_panic\(\s*expected\s*=\s*"((?:[^"\\]|\\.)*)"', text(attribute))
            found += [Expectation("panic!", words, False, index, line) for words in panics]
        for macro in ordered_captures("rust", "(macro_invocation) @m", body).get("m", ()):
            if text(macro.child_by_field_name("macro")) in ("assert", "assert_matches", "matches"):
                variants = re.findall(r"\b([A-Z]\w*(?:Error|Err)::[A-Z]\w*)", text(macro))
                found += [Expectation(variant, "", False, index, first_line(macro)) for variant in variants]
    return tuple(found)
