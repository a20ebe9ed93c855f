"""By which names Go's errors, logs and exits are known."""

from __future__ import annotations

import re

from windtunnel.catalog.record import Kind

MAKER = re.compile(r"^(?:fmt\.Errorf|\w*[eE]rr(?:or)?s\.(?:New|Newf|Errorf|Wrapf?|WithMessagef?|Annotatef?|Tracef?))$")
STATUS = re.compile(r"^(?:\w*status\.(?:Errorf?|Newf?)|grpc\.Errorf)$")
CODE = re.compile(r"^(?:\w+\.)?codes\.(\w+)$")
OWN_MAKER = re.compile(r"^(?:\w+\.)*\w*[eE]rr(?:or)?f?$")
"""A function of the tree that makes errors, by its name: `newError`, `connectionErrorf`, `d.syntaxError`."""
ERROR_TYPE = re.compile(r"^(?:\w+\.)?\w*(?:Error|Err)$")
_NO_ERROR = r"(?!Code|Str|Msg|Ch(?:an)?\b|C\b|Log|Func|No\b|Count|Group)"
SENTINEL = re.compile(rf"^(?:\w+\.)?[eE]rr{_NO_ERROR}[A-Z]\w*$")
GIVEN_SENTINEL = re.compile(rf"(?<![\w.])(?:\w+\.)?[eE]rr{_NO_ERROR}[A-Z]\w*\b(?!\s*[(:.])")
HANDS_ON = re.compile(
    r"(?i)(?:^|\.)(?:respond|reply|finish|fail|abort|reject|cancel|complete|\w*withErr(?:or)?|set\w*err\w*)$"
)
"""Methods that give an error to whoever waits for it: `future.respond(ErrNotLeader)`."""
ERROR_VARIABLE = re.compile(r"(?<![\w.])(?:e|\w*[eE]rr)\b(?!\s*[(:])")
SAYS = re.compile(r"(?i)^(?:\w*(?:msg|message|reason|desc|description|text|detail|err|error))$")
"""Fields that are an error's message, where its type is not known."""
LOGGER = re.compile(r"(?i)log(?:ger|rus)?\d?(?:$|\W)|(?:^|\.)(?:lg|sugar|entry)(?:\(\))?$|^zap\.[ls]\(\)$")
TESTING = re.compile(r"^(?:\w+\.)*(?:t|tb|b|f|c|T|TB|T\(\)|Ginkgo\w*\(\))$")
LEVELS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"^(?:Fatal|Exit)(?:f|ln|w|S|Depth|Depthf|Context)?$"), "fatal log"),
    (re.compile(r"^Panic(?:f|ln|w|S|Depth|Context)?$"), "panic"),
    (re.compile(r"^Error(?:f|ln|w|S|Depth|Depthf|Context|Contextf)?$"), "log"),
)
PRINTS = re.compile(r"^(?:fmt\.(?:Print|Fprint)|\w*log(?:ger)?\.Print|\w+\.Print(?:Err)?)(?:f|ln)?$")
