"""Whatever a text is wrapped in, the errors in it are read: type, message, frames, and what was made from what."""

from __future__ import annotations

import subprocess
import sys

import pytest

from windtunnel.catalog.match.clean import MOST_LINE_CHARACTERS, lines_of, prefix_of
from windtunnel.catalog.match.reading import read
from windtunnel.catalog.match.seen import Event, Seen

CHAINED = """
def inner(table):
    return table["key"]

def outer():
    try:
        inner({})
    except KeyError as error:
        raise ValueError("no\\nkey") from error

outer()
"""
GROUP = """
def fail(kind, *words):
    raise kind(*words)

def gathered():
    errors = [TypeError("never raised")]
    for kind in (OSError, RuntimeError):
        try:
            fail(kind, "bad")
        except Exception as error:
            errors.append(error)
    try:
        raise ExceptionGroup("inner", errors[1:])
    except ExceptionGroup as inner:
        raise ExceptionGroup("outer", [errors[0], inner]) from None

gathered()
"""


def traceback_of(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr


def only(text: str) -> Event:
    (event,) = read(text)
    return event


def shapes(events: list[Event]) -> list[list[tuple[str, str, str]]]:
    return [[(seen.how, seen.type.rpartition(".")[2], seen.message) for seen in event] for event in events]


def functions(seen: Seen) -> list[str]:
    return [frame.function for frame in seen.frames]


# --- Python -----------------------------------------------------------------------------------------------------------


def test_a_chained_traceback_is_read_from_its_root() -> None:
    root, made = only(traceback_of(CHAINED))
    assert (root.type, root.message, functions(root)) == ("KeyError", "'key'", ["outer", "inner"])
    assert (made.how, made.type, made.message, functions(made)) == (
        "direct cause", "ValueError", "no\nkey", ["<module>", "outer"],
    )  # fmt: skip


def test_the_members_of_groups_are_read_with_the_groups_above_them() -> None:
    assert shapes(read(traceback_of(GROUP))) == [
        [("", "TypeError", "never raised"), ("member", "ExceptionGroup", "outer (2 sub-exceptions)")],
        [
            ("", "OSError", "bad"),
            ("member", "ExceptionGroup", "inner (2 sub-exceptions)"),
            ("member", "ExceptionGroup", "outer (2 sub-exceptions)"),
        ],
        [
            ("", "RuntimeError", "bad"),
            ("member", "ExceptionGroup", "inner (2 sub-exceptions)"),
            ("member", "ExceptionGroup", "outer (2 sub-exceptions)"),
        ],
    ]


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-30 12:00:01,123 ERROR app: ",
        "(EngineCore_DP0 pid=123) ERROR 11-30 12:00:01 [core.py:842] ",
        "\x1b[36m(APIServer pid=1)\x1b[0m ",
        "worker-1  | ",
        "[pod/a/b] 2026-11-30T12:00:01.5Z ",
        "E1130 12:00:01.000123 4321 file.cc:12] ",
        "    ",
    ],
)
@pytest.mark.parametrize("code", [CHAINED, GROUP])
def test_a_prefix_on_every_line_changes_nothing(prefix: str, code: str) -> None:
    plain = traceback_of(code)
    prefixed = "".join(f"{prefix}{line}\n" for line in plain.splitlines())
    assert shapes(read(prefixed)) == shapes(read(plain))
    assert [functions(seen) for event in read(prefixed) for seen in event] == [
        functions(seen) for event in read(plain) for seen in event
    ]


def test_two_processes_that_fail_at_once_are_told_apart() -> None:
    one = [f"(Worker pid=1) {line}" for line in traceback_of(CHAINED).splitlines()]
    two = [f"(Worker pid=2) {line}" for line in traceback_of("def f():\n    1 / 0\nf()").splitlines()]
    mixed = [line for pair in zip(one, two + [""] * len(one), strict=False) for line in pair if line]
    assert [event[-1].type for event in read("\n".join(mixed))] == ["ValueError", "ZeroDivisionError"]


def test_what_a_logger_says_above_a_traceback_belongs_to_it() -> None:
    event = only("ERROR:root:the engine died\n" + traceback_of(CHAINED))
    assert (event[-1].how, event[-1].message) == ("logged", "the engine died")


def test_the_log_goes_on_after_a_message() -> None:
    events = read(traceback_of(CHAINED) + "INFO:root:all is well\n")
    assert events[0][-1].message == "no\nkey"


def test_a_syntax_error_is_read_without_its_carets() -> None:
    event = only(traceback_of("import ast\nast.parse('a = = 1')"))
    assert (event[0].type, event[0].message) == ("SyntaxError", "invalid syntax")
    assert event[0].frames[-1].function == "parse"


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_traceback_without_its_beginning_is_read(cut: int) -> None:
    lines = traceback_of(CHAINED).splitlines()
    events = read("\n".join(lines[cut:]))
    assert (events[-1][-1].type, functions(events[-1][-1])[-1:]) == ("ValueError", ["outer"])


def test_a_traceback_without_its_end_still_has_its_frames() -> None:
    lines = traceback_of(CHAINED).splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith("KeyError"))
    seen = only("\n".join(lines[:end]))[0]
    assert (seen.type, functions(seen)) == ("", ["outer", "inner"])


def test_a_recursion_is_read_to_its_end() -> None:
    seen = only(traceback_of("def f(n):\n    return f(n + 1)\nf(0)"))[0]
    assert seen.type == "RecursionError"


def test_what_pydantic_reports_is_the_root() -> None:
    text = """1 validation error for Config
max_len
  Value error, max_len must be positive, got -3 [type=value_error, input_value=-3, input_type=int]
    For further information visit https://errors.pydantic.dev/2.12/v/value_error"""
    chain = read("pydantic_core._pydantic_core.ValidationError: " + text)[0]
    assert (chain[0].how, chain[0].type, chain[0].message) == ("", "ValueError", "max_len must be positive, got -3")
    assert chain[1].how == "validator"


# --- other languages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "thread 'main' panicked at src/main.rs:2:5:\nboom 3\nnote: run with `RUST_BACKTRACE=1`\n",
        "thread 'main' (77) panicked at src/main.rs:2:5:\nboom 3\n",
        "thread 'main' panicked at 'boom 3', src/main.rs:2:5\nnote: run with `RUST_BACKTRACE=1`\n",
        "2026-11-30T12:00:00Z thread 'main' panicked at src/main.rs:2:5:\n2026-11-30T12:00:00Z boom 3\n",
    ],
)
def test_panics_of_rust_are_read_in_both_forms(text: str) -> None:
    seen = read(text)[0][0]
    assert (seen.message, seen.frames[-1].path, seen.frames[-1].line) == ("boom 3", "src/main.rs", 2)


def test_the_backtrace_of_a_panic_names_the_function() -> None:
    seen = only(
        """thread 'main' panicked at src/run.rs:12:9:
cannot run 3
stack backtrace:
   0: rust_begin_unwind
             at /rustc/abc/library/std/src/panicking.rs:665:5
   1: core::panicking::panic_fmt
             at /rustc/abc/library/core/src/panicking.rs:74:14
   2: app::run::Engine::start::h0123456789abcdef
             at ./src/run.rs:12:9
   3: app::main
             at ./src/main.rs:4:5
   4: core::ops::function::FnOnce::call_once
             at /rustc/abc/library/core/src/ops/function.rs:250:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""
    )[0]
    assert functions(seen) == ["app::main", "app::run::Engine::start"]
    assert seen.message == "cannot run 3"


@pytest.mark.parametrize(
    ("causes", "messages"),
    [
        ("    0: the middle\n    1: the root\n", ["the root", "the middle", "the end"]),
        ("    the root\n", ["the root", "the end"]),
    ],
)
def test_the_causes_of_anyhow_are_read_from_the_deepest(causes: str, messages: list[str]) -> None:
    assert [seen.message for seen in only(f"Error: the end\n\nCaused by:\n{causes}")] == messages


def test_a_panic_of_go_is_read_with_its_frames() -> None:
    seen = read(
        """panic: no room left [recovered]
	panic: no room left

goroutine 1 [running]:
panic({0x45e0a0?, 0x4b8d70?})
	/usr/lib/go/src/runtime/panic.go:770 +0x132
example.com/app/store.(*Table).Put(0xc000012345, {0x1, 0x2})
	/app/store/table.go:31 +0x1d
main.main()
	/app/main.go:9 +0x20
exit status 2
"""
    )[0][0]
    assert (seen.message, functions(seen)) == ("no room left", ["main.main", "example.com/app/store.(*Table).Put"])
    assert (seen.frames[-1].path, seen.frames[-1].line) == ("/app/store/table.go", 31)


def test_a_trace_of_java_is_read_from_its_deepest_cause() -> None:
    chain = only(
        """Exception in thread "main" java.lang.IllegalStateException: cannot start
	at org.example.app.Main.start(Main.java:10)
	at org.example.app.Main.main(Main.java:3)
Caused by: java.io.IOException: disk is full: /data
	at org.example.app.Disk$Writer.write(Disk.java:77)
	at org.example.app.Main.start(Main.java:8)
	... 1 more
"""
    )
    assert [(seen.how, seen.type, seen.message) for seen in chain] == [
        ("", "java.io.IOException", "disk is full: /data"),
        ("caused by", "java.lang.IllegalStateException", "cannot start"),
    ]
    assert chain[0].frames[-1].path == "org/example/app/Disk.java"


def test_a_trace_of_javascript_is_read_with_its_cause() -> None:
    chain = only(
        """Error: cannot load
    at load (/app/dist/load.js:2:9)
    at node:internal/main:1:1 {
  [cause]: TypeError: x is not a function
      at parse (file:///app/dist/parse.js:3:4)
}
"""
    )
    assert [(seen.type, seen.message, functions(seen)) for seen in chain] == [
        ("TypeError", "x is not a function", ["parse"]),
        ("Error", "cannot load", ["load"]),
    ]


def test_what_cpp_says_of_an_exception_that_nobody_caught_is_read() -> None:
    seen = read("terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad 3\nAborted\n")[0][
        0
    ]
    assert (seen.type, seen.message) == ("std::runtime_error", "bad 3")


# --- lines and bodies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message", "level"),
    [
        ("2026-11-30 12:00:00,123 - my.logger - ERROR - it broke: 5", "it broke: 5", 2),
        ("ERROR:root:it broke: 5", "it broke: 5", 2),
        ("[2026-11-30T12:00:00Z ERROR app::run] it broke: 5", "app::run] it broke: 5", 2),
        ("(Worker pid=3) INFO 11-30 12:00:00 [core.py:5] it broke: 5", "it broke: 5", 0),
        ("2026/11/30 12:00:00 it broke: 5", "it broke: 5", None),
        ("2026-11-30 12:00:00.123 | CRITICAL | app.core:run:12 - it broke: 5", "it broke: 5", 3),
        ("[2026-11-30 12:00:00.123] [nixl] [error] it broke: 5", "it broke: 5", 2),
        ("it broke: 5", "it broke: 5", None),
        ("error reading file", "error reading file", None),
    ],
)
def test_a_loggers_prefix_is_taken_off(line: str, message: str, level: int | None) -> None:
    prefix = prefix_of(line)
    assert (prefix.rest, prefix.level) == (message, level)


def test_a_loggers_prefix_names_the_place() -> None:
    place = prefix_of("(Worker pid=3) ERROR 11-30 12:00:00 [core.py:842] it broke").place
    assert place is not None
    assert (place.path, place.line) == ("core.py", 842)


@pytest.mark.parametrize(
    ("body", "type_", "message"),
    [
        ('{"error": {"message": "too long", "type": "BadRequestError", "code": 400}}', "BadRequestError", "too long"),
        ('HTTP 422: {"detail": [{"loc": ["body"], "msg": "field required", "type": "missing"}]}', "", "field required"),
        ('{"detail": "not here"}', "", "not here"),
        ('data: {"error": {"message": "ValueError: inside the stream"}}', "ValueError", "inside the stream"),
        ('{"error": "{\\"message\\": \\"twice wrapped\\"}"}', "", "twice wrapped"),
        ('{"object": "error", "message": "old form", "type": "NotFoundError"}', "NotFoundError", "old form"),
    ],
)
def test_the_message_of_a_body_is_read(body: str, type_: str, message: str) -> None:
    seen = read(body)[0][0]
    assert (seen.type, seen.message) == (type_, message)


def test_a_traceback_in_a_structured_log_line_is_read() -> None:
    import json

    line = json.dumps({"level": "error", "msg": "died", "exc_info": traceback_of(CHAINED)})
    assert [seen.type for seen in only(line)] == ["KeyError", "ValueError"]


def test_json_that_is_nested_too_deep_or_broken_is_a_line() -> None:
    assert read('{"error": ' * 5_000)[0][0].message.startswith('{"error"')


def test_colours_controls_and_ends_of_lines_are_taken_off() -> None:
    assert lines_of("\x1b[31mred\x1b[0m\x00 text\r\nnext\x1b]8;;http://x\x07link\x1b]8;;\x07") == [
        "red text",
        "nextlink",
    ]


def test_a_lone_surrogate_is_replaced() -> None:
    assert read("ValueError: bad \udce9 name")[0][0].message == "bad \ufffd name"


def test_a_line_of_many_megabytes_is_cut() -> None:
    assert [len(line) for line in lines_of("x" * 10_000_000)] == [MOST_LINE_CHARACTERS]


@pytest.mark.parametrize("text", ["", "\n\n", " ", "\x00"])
def test_nothing_is_nothing(text: str) -> None:
    assert read(text) == []


def test_a_text_is_read_in_a_time_that_grows_with_it() -> None:
    """Words of every form, cut off anywhere: nothing is raised, and nothing takes long."""
    forms = [
        traceback_of(GROUP),
        "panic: x\n",
        "Error: a\n\nCaused by:\n",
        "\tat a.b.C(C.java:1)\n",
        "  + Exception Group ",
    ]
    read("".join(forms * 300))
