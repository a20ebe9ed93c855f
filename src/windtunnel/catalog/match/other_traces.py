"""Panics and traces of Rust, Go, Java, JavaScript and C++."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from windtunnel.catalog.match.clean import is_log_line, prefix_of
from windtunnel.catalog.match.lines import Block, Lines
from windtunnel.catalog.match.seen import Event, Frame, Seen

_MOST_MESSAGE_LINES = 100

_RUST_NEW = re.compile(
    r"thread '[^']{0,200}' (?:\(\d+\) )?panicked at (?P<path>[^\s':][^':]*\.rs):(?P<line>\d+):\d+:\s*$"
)
_RUST_OLD = re.compile(
    r"thread '[^']{0,200}' panicked at '(?P<message>.*)', (?P<path>[^\s':]+\.rs):(?P<line>\d+):\d+\s*$"
)
_RUST_OLD_START = re.compile(r"thread '[^']{0,200}' panicked at '")
_RUST_FRAME = re.compile(r"\s*\d+:(?:\s+0x[0-9a-f]+ -)? +(?P<function>\S.*)$")
_RUST_AT = re.compile(r"\s+at (?P<path>\S.*?):(?P<line>\d+)(?::\d+)?$")
_RUST_INNER = re.compile(r"(?:rust_begin_unwind|core::|std::|alloc::|<?(?:core|std|alloc)::|__rust|_start|__libc)")
_RUST_NOTE = re.compile(r"note: (?:run with|Some details|.*RUST_BACKTRACE)|stack backtrace:")

_GO_PANIC = re.compile(r"(?:panic|fatal error): (?P<message>.*)$")
_GO_GOROUTINE = re.compile(r"goroutine \d+ (?:gp=\S+ )?(?:m=\S+ )?(?:mp=\S+ )?\[[^\]]*\]:")
_GO_FUNCTION = re.compile(
    r"(?:created by )?(?P<function>[\w./\-*()\[\]·%~]+?)(?:\([^()]*(?:\([^()]*\)[^()]*)*\)| in goroutine \d+)?$"
)
_GO_AT = re.compile(r"\s+(?P<path>\S.*?\.(?:go|s)):(?P<line>\d+)(?: \+0x[0-9a-f]+)?")

_AT = re.compile(r"\s+at (?P<what>.+?)\s*$")
_JAVA_AT = re.compile(
    r"(?:[\w.@-]+//?)*(?P<function>[\w.$<>]+)"
    r"\((?:(?P<path>[\w$.-]+\.(?:java|kt|scala|groovy)):?(?P<line>\d+)?|[^()]*)\)(?: ~?\[[^\]]*\])?$"
)
_JS_AT = re.compile(
    r"(?:(?:async |new )*(?P<function>[^()]+?) \()?(?:file://)?(?P<path>[^()\s][^()]*?):(?P<line>\d+):\d+\)?(?: \{)?$"
)
_MORE = re.compile(r"\s*\.\.\. \d+ (?:more|common frames omitted|lines matching .*)")
_CAUSED_BY = re.compile(r"(?P<indent>\s*)(?:Caused by|\[cause\]|Suppressed): ?(?P<head>.*)$")
_HEAD = re.compile(
    r"(?:Exception in thread \"[^\"]*\" |Uncaught |\(node:\d+\) )?"
    r"(?P<type>[A-Za-z_$][\w.$]*)(?: \[[A-Z_0-9]+\])?(?:: (?P<message>.*))?$"
)

_ANYHOW_CAUSES = re.compile(r"Caused by:\s*$")
_ANYHOW_NUMBER = re.compile(r"\s+(?P<number>\d+): (?P<text>.*)$")

_TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_WHAT = re.compile(r"\s*what\(\): {1,2}(?P<message>.*)$")


class Form(NamedTuple):
    """A form of trace: what its first line has, and who reads it."""

    is_start: re.Pattern[str]
    read: Callable[[Lines, Block], tuple[list[Event], int]]


def read_rust(lines: Lines, block: Block) -> tuple[list[Event], int]:
    """A panic, in the old form (message and place on a line) or the new, with the frames of its backtrace."""
    at, message, place = _rust_head(block)
    if place is None:
        return [], 0
    while at < len(block) and not block[at][1].strip():
        at += 1
    frames: list[Frame] = []
    while at < len(block) and (_RUST_NOTE.match(block[at][1]) or _RUST_FRAME.match(block[at][1])):
        match = _RUST_FRAME.match(block[at][1])
        at += 1
        if match is None:
            continue
        function = re.sub(r"::h[0-9a-f]{16}$", "", match["function"].strip())
        path, line = "", None
        if at < len(block) and (where := _RUST_AT.match(block[at][1])):
            path, line = where["path"], int(where["line"])
            at += 1
        if not _RUST_INNER.match(function) and "/rustc/" not in path:
            frames.append(Frame(path, line, function))
    frames = [frame for frame in frames if frame.path][::-1]
    if frames and _same_place(frames[-1], place):
        frames[-1] = frames[-1]._replace(line=place.line)
    else:
        frames.append(place)
    return [(_seen(lines, block, at, "", message, tuple(frames), "rust"),)], at


def _rust_head(block: Block) -> tuple[int, str, Frame | None]:
    head = block[0][1]
    if match := _RUST_NEW.match(head):
        at = 1
        while at < len(block) and at <= _MOST_MESSAGE_LINES and not _ends_rust_message(block, at):
            at += 1
        return at, "\n".join(text for _, text in block[1:at]), Frame(match["path"], int(match["line"]), "")
    for at in range(1, min(len(block), _MOST_MESSAGE_LINES) + 1):
        if match := _RUST_OLD.match("\n".join(text for _, text in block[:at])):
            return at, match["message"], Frame(match["path"], int(match["line"]), "")
    return 1, "", None


def _ends_rust_message(block: Block, at: int) -> bool:
    text = block[at][1]
    return (at > 1 and (not text.strip() or is_log_line(text) or "panicked at " in text)) or bool(
        _RUST_NOTE.match(text)
    )


def _same_place(frame: Frame, place: Frame) -> bool:
    return frame.path.split("/")[-1] == place.path.split("/")[-1]


def read_go(lines: Lines, block: Block) -> tuple[list[Event], int]:
    """A panic with its goroutine's frames; of several panics, each was raised while the one before was handled."""
    start = next((at for at, (_, text) in enumerate(block[:60]) if _GO_GOROUTINE.match(text)), None)
    if start is None:
        return [], 0
    messages: list[str] = []
    for _, text in block[:start]:
        if match := _GO_PANIC.match(text.strip()):
            messages.append(re.sub(r" \[recovered(?:, repanicked)?\]$", "", match["message"]))
        elif text.strip() and messages and not text.startswith("[signal "):
            messages[-1] += "\n" + text
    frames, at = [], start + 1
    while at + 1 < len(block):
        function, where = _GO_FUNCTION.match(block[at][1].rstrip()), _GO_AT.match(block[at + 1][1])
        if not function or not where:
            break
        frames.append(Frame(where["path"], int(where["line"]), function["function"]))
        at += 2
    while frames and (frames[0].function == "panic" or frames[0].function.startswith(("runtime.", "testing."))):
        frames.pop(0)
    chain: list[Seen] = []
    for position, message in enumerate(messages):
        own = tuple(frames[::-1]) if position == len(messages) - 1 or position == 0 else ()
        seen = _seen(lines, block, at, "", message, own, "go")
        chain.append(seen if not chain else seen._replace(how="during handling"))
    return [tuple(chain)] if chain else [], at


def read_java(lines: Lines, block: Block) -> tuple[list[Event], int]:
    """A trace of Java or JavaScript: `at` lines below the error, `Caused by` further down and deeper in the chain."""
    found: list[Seen] = []
    at = 0
    while at < len(block):
        cause = _CAUSED_BY.match(block[at][1]) if found else None
        if found and (cause is None or "Suppressed" in cause[0]):
            break
        head = [cause["head"] if cause else block[at][1]]
        start = at
        at += 1
        while at < len(block) and at - start < _MOST_MESSAGE_LINES and not _AT.match(block[at][1]):
            if found and _CAUSED_BY.match(block[at][1]):
                break
            head.append(block[at][1])
            at += 1
        frames, at, language = _at_frames(block, at)
        match = _HEAD.match(head[0].strip())
        type_, message = (match["type"], match["message"] or "") if match else ("", head[0].strip())
        message = "\n".join([message, *head[1:]]).strip()
        found.append(_seen(lines, block, at, type_, message, frames, language))
    chain = [seen._replace(how="" if i == 0 else "caused by") for i, seen in enumerate(reversed(found))]
    return [tuple(chain)] if chain else [], at


def _at_frames(block: Block, at: int) -> tuple[tuple[Frame, ...], int, str]:
    frames: list[Frame] = []
    language = "java"
    while at < len(block):
        text = block[at][1]
        if _MORE.match(text):
            at += 1
            continue
        match = _AT.match(text)
        if match is None:
            if not text.lstrip().startswith("Suppressed: "):
                break
            at = _without_suppressed(block, at)
            continue
        if java := _JAVA_AT.match(match["what"]):
            line = int(java["line"]) if java["line"] else None
            frames.append(Frame(_java_path(java["function"], java["path"] or ""), line, java["function"]))
        elif script := _JS_AT.match(match["what"]):
            language = "javascript"
            if not script["path"].startswith("node:"):
                frames.append(Frame(script["path"], int(script["line"]), script["function"] or ""))
        at += 1
    while at < len(block) and block[at][1].strip() in ("}", "},"):
        at += 1
    return tuple(frames[::-1]), at, language


def _without_suppressed(block: Block, at: int) -> int:
    indent = len(block[at][1]) - len(block[at][1].lstrip())
    at += 1
    while at < len(block) and len(block[at][1]) - len(block[at][1].lstrip()) > indent:
        at += 1
    return at


def _java_path(function: str, name: str) -> str:
    """A trace has the file's name; its folder is the package."""
    package = [part for part in function.split(".")[:-2] if part.islower()]
    return "/".join([*package, name]) if name else ""


def read_anyhow(lines: Lines, block: Block) -> tuple[list[Event], int]:
    """`Error: …`, `Caused by:`, and the causes, the deepest last."""
    at = next((i for i, (_, text) in enumerate(block[:_MOST_MESSAGE_LINES]) if _ANYHOW_CAUSES.match(text)), None)
    if at is None:
        return [], 0
    messages = ["\n".join(text for _, text in block[:at]).strip().removeprefix("Error: ")]
    at += 1
    while at < len(block):
        text = block[at][1]
        match = _ANYHOW_NUMBER.match(text)
        if match or (text.startswith("    ") and len(messages) == 1):
            messages.append(match["text"] if match else text.strip())
        elif text.startswith("    ") and text.strip():
            messages[-1] += "\n" + text.strip()
        else:
            break
        at += 1
    chain = [_seen(lines, block, at, "", message, (), "rust") for message in reversed(messages)]
    return [tuple(seen._replace(how="caused by" if i else "", has_trace=False) for i, seen in enumerate(chain))], at


def read_terminate(lines: Lines, block: Block) -> tuple[list[Event], int]:
    """What C++ says of an exception that nobody caught."""
    match = _TERMINATE.match(block[0][1])
    message = []
    for _, text in block[1:]:
        if what := _WHAT.match(text):
            message = [what["message"]]
        elif message and text.strip() and not is_log_line(text) and not text.startswith("Aborted"):
            message.append(text)
        else:
            break
    seen = _seen(lines, block, 1 + len(message), match["type"] if match else "", "\n".join(message), (), "cpp")
    return [(seen._replace(has_trace=False),)], 1 + len(message)


def _seen(
    lines: Lines, block: Block, end: int, type_: str, message: str, frames: tuple[Frame, ...], language: str
) -> Seen:
    """What the block's lines before `end` say."""
    first, last = block[0][0], block[max(end, 1) - 1][0]
    return Seen(
        type_, message.strip("\n"), frames, "", lines.number(first), lines.number(last),
        has_trace=bool(frames), language=language,
    )  # fmt: skip


def starts_at_line(lines: Lines, index: int) -> bool:
    """Whether the lines below are frames of Java or JavaScript, and this one is their error."""
    text = lines.lines[index]
    if _AT.match(text) or not text.strip():
        return False
    for below in lines.lines[index + 1 : index + 3]:
        match = _AT.match(below)
        if match and (_JAVA_AT.match(match["what"]) or _JS_AT.match(match["what"])):
            return True
    return False


def error_start(line: str) -> int:
    """Where, on a line above frames, the error begins: after the logger's prefix."""
    rest = prefix_of(line).rest
    return len(line) - len(rest)


FORMS: tuple[Form, ...] = (
    Form(re.compile(r"thread '[^']{0,200}' (?:\(\d+\) )?panicked at "), read_rust),
    Form(re.compile(r"(?:panic|fatal error): "), read_go),
    Form(re.compile(r"terminate called after throwing an instance of '"), read_terminate),
)
