"""Lines as terminals and loggers leave them → lines without colours, with their prefix read.

A prefix is taken off token by token: process tags, dates, levels, places, names of loggers. What it says of the level
and the place is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from windtunnel.catalog.match.seen import Frame

MOST_LINE_CHARACTERS = 16_384
MOST_TEXT_CHARACTERS = 4_000_000
"""Of a text that is read as a whole; longer ones are logs, and are scanned."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = {code: None for code in range(32) if code not in (9, 10, 13)} | {0x7F: None, 0xFEFF: None}

_DATE = r"\d{4}[-/.]\d\d[-/.]\d\d|\d{4}\d\d\d\d|\d\d[-/]\d\d(?:[-/]\d\d)?|[A-Z][a-z]{2}[ ]{1,2}\d{1,2}(?:[ ]\d{4})?"
_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?(?:[ ]?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_LEVELS = {
    "trace": 0, "debug": 0, "dbg": 0, "info": 0, "information": 0, "notice": 0, "success": 0,
    "warn": 1, "warning": 1, "wrn": 1,
    "error": 2, "err": 2, "severe": 2, "exception": 2,
    "critical": 3, "crit": 3, "fatal": 3, "alert": 3, "emergency": 3, "panic": 3,
}  # fmt: skip
_LEVEL = "|".join(sorted(_LEVELS, key=len, reverse=True))
_FILE = r"[\w./<>+-]*\w\.(?:py|pyx|cc|cpp|cxx|cu|cuh|h|hh|hpp|rs|go|ts|tsx|js|mjs|java)"
_TOKENS = re.compile(
    rf"""\s*(?:
      (?P<tag>\([^()\n]{{0,80}}?\bpid=\d+[^()\n]{{0,80}}\)|\[pod/[^\]\n]{{1,200}}\]
      |(?!(?:{_LEVEL})\b)[\w.-]{{1,60}}\ {{1,12}}\|(?=\s))
    | (?P<time>\[?(?:(?:{_DATE})[T ,]{{1,2}})?{_CLOCK}\]?|\[?\d{{10}}\.\d{{1,9}}\]?)
    | (?P<klog>[IWEF](?:\d{{4}}|\d{{8}})\ {_CLOCK}\ {{1,8}}\d{{1,9}}\ (?P<klog_file>{_FILE}):(?P<klog_line>\d+)\])
    | [\[(]?(?P<place>{_FILE}):(?P<line>\d{{1,7}})(?::\d{{1,5}})?[\])]?(?=[\s:\]-]|$)
    | [\[(<]?(?P<level>{_LEVEL})[\])>]?(?=[\s:|\]-]|$)
    | (?P<name>[\w.:/-]{{1,80}})\ (?:-\ )?(?=[\[(]?(?-i:ERROR|CRITICAL|FATAL|WARNING|WARN|INFO|DEBUG)\b)
    | \[(?:thread\ )?[\w./:#@-]{{1,60}}\](?=\s)
    | [-|:>]+(?=\s|$)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_LOGURU = re.compile(r"\s*\|?\s*(?P<module>[\w.]{1,80}):(?P<function>[\w<>]{1,80}):(?P<line>\d{1,7}) ?[-|] ")
_LOGGER = re.compile(r"(?P<name>[a-zA-Z_][\w.]{0,80}(?:::\w{1,80}){0,9})(?:\[\d+\])?(?::| -(?= )|:(?=\S))\s*")


class Prefix(NamedTuple):
    """What stood before a line's message."""

    rest: str
    """The message."""
    level: int | None = None
    """0: information and below, 1: warning, 2: error, 3: fatal; None: it does not say."""
    place: Frame | None = None
    is_dated: bool = False


def clean(text: str) -> str:
    """Without colours, control characters, carriage returns and halves of surrogate pairs."""
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def lines_of(text: str) -> list[str]:
    """The lines of a text as somebody pasted or logged it, bounded in number and length."""
    return [line[:MOST_LINE_CHARACTERS] for line in clean(text[:MOST_TEXT_CHARACTERS]).split("\n")]


def prefix_of(line: str) -> Prefix:
    """Read a line's prefix."""
    position, level, place, is_dated, is_prefixed = 0, None, None, False, False
    for _ in range(12):
        match = _TOKENS.match(line, position)
        if match is None or match.end() == position:
            break
        if match["name"] and not is_prefixed:
            break
        if match["level"] and not _stands_for_level(match, line, is_prefixed):
            break
        if match["place"] and not is_prefixed and line[match.end() :].strip(" :]") == "":
            break  # all there is
        position = match.end()
        is_prefixed = True
        is_dated = is_dated or match["time"] is not None or match["klog"] is not None
        if match["level"]:
            level = _LEVELS[match["level"].lower()]
        elif match["klog"]:
            level = {"I": 0, "W": 1, "E": 2, "F": 3}[match["klog"][0].upper()]
            place = Frame(match["klog_file"], int(match["klog_line"]), "")
        elif match["place"]:
            place = Frame(match["place"], int(match["line"]), "")
    if is_prefixed and (match := _LOGURU.match(line, position)):
        place = Frame(match["module"].replace(".", "/") + ".py", int(match["line"]), match["function"])
        position = match.end()
    rest = line[position:].lstrip(" ") if position else line
    is_after_colon = is_prefixed and rest.startswith(":")
    rest = rest[1:].lstrip(" ") if is_after_colon else rest
    if is_after_colon and (logger := _LOGGER.match(rest)):  # LEVEL:logger:message
        rest = rest[logger.end() :]
    return Prefix(rest, level, place, is_dated)


def _stands_for_level(match: re.Match[str], line: str, is_prefixed: bool) -> bool:
    """`error` may begin a sentence, and `Error:` a message of anyhow."""
    word, after = match["level"], line[match.end() : match.end() + 1]
    if match[0].strip()[:1] in "[(<" or word.isupper():
        return True
    return is_prefixed and after in (":", " ", "|", "-", "]", "")


def process_of(line: str) -> str:
    """The process that a line's beginning names, as Ray, vLLM, docker and kubectl do; empty: none."""
    match = _TOKENS.match(line)
    return match["tag"] or "" if match else ""


def is_log_line(line: str) -> bool:
    """Whether a logger wrote it: it begins with a date, a level, or the name of a process."""
    if not line or line[0] in " \t":
        return False
    prefix = prefix_of(line)
    return prefix.is_dated or (prefix.level is not None and prefix.rest != line)


def margin_of(prefix: str) -> Callable[[str], str | None]:
    """What takes a prefix like this one off further lines: the same but for its times; None for a line without it."""
    if not prefix.strip():
        width = len(prefix)
        return lambda line: line[width:] if not line[:width].strip() else line
    pattern = re.sub(
        r"(?P<exact>\([^()]*\)|[\w./<>+-]*[A-Za-z_][\w./<>+-]*:\d+)|(?P<digits>\d+)|(?P<other>.)",
        lambda m: r"\d+" if m["digits"] else re.escape(m[0]),
        prefix.rstrip(),
        flags=re.DOTALL,
    )
    compiled = re.compile(pattern)
    width = len(prefix) - len(prefix.rstrip())

    def without(line: str) -> str | None:
        match = compiled.match(line)
        if match is None:
            return None
        end = match.end()
        most = end + width
        while end < most and line[end : end + 1] == " ":
            end += 1
        return line[end:]

    return without
