"""Calls of Rust, who catches what they give, and every `?` with the error that it passes on, where that can be told."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from tree_sitter import Node

from windtunnel.catalog.extract.rust.reader import RustReader
from windtunnel.catalog.extract.syntax import excerpt_of, first_line, last_line, one_line, ordered_captures, text
from windtunnel.catalog.facts import CallFacts, HandlerFacts, PropagationFacts

IO_ERROR, SERDE_JSON, REQWEST = "std::io::Error", "serde_json::Error", "reqwest::Error"

_ERRORS_OF: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^serde_json::"), SERDE_JSON),
    (re.compile(r"^(?:\w+::)*toml::|^toml::"), "toml::de::Error"),
    (re.compile(r"\.(?:send|error_for_status|bytes|text|json|chunk)\(.*\)\.await$"), REQWEST),
    (re.compile(r"^(?:std::|tokio::)?fs::\w+\(|^(?:\w+::)*(?:File|OpenOptions)::\w+\("), IO_ERROR),
    (re.compile(r"^(?:std::|tokio::)?net::|\b(?:Tcp|Udp|Unix)(?:Stream|Listener|Socket|Datagram)::\w+\("), IO_ERROR),
    (re.compile(r"^(?:std::)?env::current_(?:dir|exe)\("), IO_ERROR),
    (re.compile(r"^(?:std::)?env::var\("), "std::env::VarError"),
    (re.compile(r"\.(?:write_all|flush|read_to_string|read_to_end|read_line|read_exact|sync_all|sync_data|set_len|"
                r"canonicalize|metadata|symlink_metadata|read_dir|file_type|try_exists|accept|spawn|set_permissions|"
                r"try_clone|seek|rewind|set_nonblocking|peer_addr|local_addr)\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\.await)?$"),
     IO_ERROR),
    (re.compile(r"\bOpenOptions\b.*\.open\("), IO_ERROR),
    (re.compile(r"\.parse::<[iu](?:8|16|32|64|128|size)>\(\)$"), "std::num::ParseIntError"),
    (re.compile(r"\.parse::<f(?:32|64)>\(\)$"), "std::num::ParseFloatError"),
    (re.compile(r"^(?:std::)?str::from_utf8\("), "std::str::Utf8Error"),
    (re.compile(r"^String::from_utf8\("), "std::string::FromUtf8Error"),
)  # fmt: skip
"""What well-known functions fail with, by the expression that a `?` stands behind."""

_GENERIC_CALLEES = frozenset(("Ok", "Err", "Some", "Box::new", "Vec::new", "String::from", "format"))


def calls_of(reader: RustReader) -> tuple[CallFacts, ...]:
    """Calls by their last name; the receiver is what stands before the dot, or the path before the name."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for node in ordered_captures("rust", "(call_expression) @c", reader.root).get("c", ()):
        function = node.child_by_field_name("function")
        if function is None or reader.in_tests(node):
            continue
        if function.type == "field_expression":
            name, receiver = (
                text(function.child_by_field_name("field")),
                one_line(text(function.child_by_field_name("value")), 60),
            )
        else:
            path = re.sub(r"::<.*>$", "", text(function))
            receiver, _, name = path.rpartition("::")
        if name and name not in _GENERIC_CALLEES:
            found[name].append((first_line(node), "" if receiver in ("crate", "super") else receiver))
    return tuple(
        CallFacts(name, tuple(line for line, _ in calls), tuple(receiver for _, receiver in calls))
        for name, calls in found.items()
    )


def imports_of(reader: RustReader) -> tuple[tuple[str, str], ...]:
    """`use` declarations by their local name, and `=Alias` for the error type of a `Result` alias."""
    found: list[tuple[str, str]] = []
    for use in ordered_captures("rust", "(use_declaration) @u", reader.root).get("u", ()):
        found += _used(one_line(text(use)).removeprefix("pub ").removeprefix("use ").rstrip(";"), "")
    for alias in ordered_captures("rust", "(type_item) @t", reader.root).get("t", ()):
        value = one_line(text(alias.child_by_field_name("type")))
        match = re.match(r"(?:\w+::)*Result<[^,]+(?:<.*>)?,\s*(.+)>$", value)
        if match:
            found.append((f"={text(alias.child_by_field_name('name'))}", match[1]))
    return tuple(found)


def _used(path: str, before: str) -> Iterator[tuple[str, str]]:
    head, brace, inner = path.partition("{")
    if brace:
        depth, piece = 0, ""
        for character in inner.rstrip().removesuffix("}") + ",":
            depth += (character == "{") - (character == "}")
            if character == "," and depth == 0:
                if piece.strip():
                    yield from _used(piece.strip(), before + head)
                piece = ""
            else:
                piece += character
        return
    full, _, alias = (before + path).partition(" as ")
    full = full.strip().removesuffix("::self")
    yield (alias.strip() or full.rpartition("::")[2]), full


def propagations_of(reader: RustReader) -> tuple[PropagationFacts, ...]:
    """Every `?` of a function; not those of closures and async blocks, which give what they like."""
    found = []
    for node in ordered_captures("rust", "(try_expression) @t", reader.root).get("t", ()):
        if reader.in_tests(node) or _is_in_closure(node) or not node.named_children:
            continue
        operand = node.named_children[0]
        expression = one_line(text(operand), 160)
        found.append(PropagationFacts(first_line(node), reader.function_index(node), expression, error_of(expression)))
    return tuple(found)


def _is_in_closure(node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.type != "function_item":
        if parent.type in ("closure_expression", "async_block"):
            return True
        parent = parent.parent
    return False


def error_of(expression: str) -> str:
    """The type that an expression fails with; `?NAME` where a function of that name in the tree says it; else empty."""
    if re.search(r"\.ok\(\)$|\.(?:map_err|ok_or|ok_or_else|context|with_context)\(", expression):
        return ""  # an Option, or another error by now
    for pattern, error in _ERRORS_OF:
        if pattern.search(expression):
            return error
    call = re.match(r"(?:[\w&:.]+(?:::|\.))?(\w+)(?:::<.*?>)?\(.*\)(?:\.await)?$", expression)
    return f"?{call[1]}" if call else ""


_DROPPED = """
(call_expression function: (field_expression field: (field_identifier) @m
  (#match? @m "^(ok|unwrap_or|unwrap_or_else|unwrap_or_default|is_ok|is_err)$"))) @c
"""


def handlers_of(reader: RustReader) -> tuple[HandlerFacts, ...]:
    """`match` and `if let` on an `Err`, and calls whose result is dropped or replaced."""
    found: list[HandlerFacts] = []
    for node in ordered_captures("rust", "(match_arm) @arm", reader.root).get("arm", ()):
        pattern, match = node.child_by_field_name("pattern"), node.parent.parent if node.parent is not None else None
        caught = _caught(text(pattern))
        if caught is not None and match is not None and not reader.in_tests(node):
            scrutinee = match.child_by_field_name("value")
            found += _handler(reader, scrutinee, node, node.child_by_field_name("value"), caught)
    for node in ordered_captures("rust", "(if_expression condition: (let_condition) @let)", reader.root).get("let", ()):
        caught = _caught(text(node.child_by_field_name("pattern")))
        if caught is not None and node.parent is not None and not reader.in_tests(node):
            found += _handler(
                reader,
                node.child_by_field_name("value"),
                node.parent,
                node.parent.child_by_field_name("consequence"),
                caught,
            )
    for node in ordered_captures("rust", '(let_declaration pattern: (_) @p (#eq? @p "_")) @let', reader.root).get(
        "let", ()
    ):
        found += _handler(reader, node.child_by_field_name("value"), node, None, ())
    for node in ordered_captures("rust", _DROPPED, reader.root).get("c", ()):
        function = node.child_by_field_name("function")
        if function is not None and not reader.in_tests(node):
            found += _handler(reader, function.child_by_field_name("value"), node, None, (), "returns")
    return tuple(found)


def _caught(pattern: str) -> tuple[str, ...] | None:
    """What `Err(…)` takes: types, or everything (empty); None: it is no Err."""
    match = re.match(r"(?:\w+::)*Err\((.*)\)", one_line(pattern))
    if match is None:
        return None
    return tuple(re.findall(r"\b([A-Z]\w*::[A-Z]\w*)", match[1]))


def _handler(
    reader: RustReader, guarded: Node | None, clause: Node, body: Node | None, caught: tuple[str, ...], does: str = ""
) -> Iterator[HandlerFacts]:
    if guarded is None or "(" not in text(guarded):
        return
    start, end = first_line(clause), min(last_line(clause), first_line(clause) + 5)
    does = does or (_does(text(body)) if body is not None else "ignores")
    yield HandlerFacts(
        first_line(guarded), last_line(guarded), start, end, reader.function_index(clause), caught, does,
        excerpt_of(reader.lines, [(start, end)]),
    )  # fmt: skip


def _does(body: str) -> str:
    if re.search(r"process::exit\(|\bpanic!", body):
        return "ends the process"
    if re.search(r"\breturn Err\(\s*(?:e|err|error)\b|^Err\(\s*(?:e|err|error)\b", body):
        return "re-raises"
    if re.search(r"\bErr\(|\bbail!|\banyhow!", body):
        return "wraps"
    if re.search(r"\b(?:error|log)!|\beprintln!|\berror\s*!\(", body):
        return "logs"
    if re.search(r"\bwarn!", body):
        return "warns"
    return "returns" if re.search(r"\breturn\b|\bNone\b|\bfalse\b|::default\(\)", body) else "ignores"
