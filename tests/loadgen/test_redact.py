"""Secrets are taken out of a record's words, in whatever form a server repeats them, and out of nothing else."""

from __future__ import annotations

import json

import pytest

from windtunnel.errors import HttpStatus
from windtunnel.loadgen.journal import RequestLine, encode_line
from windtunnel.loadgen.redact import Redactor
from windtunnel.measure.record import Fault, Record


def record(words: str) -> Record:
    failure = Fault.of(HttpStatus(500, "Oops", words))
    return Record(
        index=4821,
        request_id="r",
        scheduled_ns=4821_4821,
        prompt_tokens_asked=1,
        text=words,
        transcript=words,
        failure=failure,
    )


@pytest.mark.parametrize("secret", ['sk-"q\\uo', "geheimé-wort", "sk-plain-key"])
def test_a_secret_is_found_in_every_form_in_which_it_may_come_back(secret: str) -> None:
    redactor = Redactor([("authorization", f"Bearer {secret}")], None)
    as_sent = secret.encode("latin-1").decode("utf-8", "backslashreplace")
    for form in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), as_sent, repr(as_sent)):
        one = record(f"got {form}!")
        redactor.scrub_record(one)
        line = encode_line(RequestLine(one)).decode()
        for part in (secret, as_sent, json.dumps(secret)[1:-1]):
            assert part not in line


@pytest.mark.parametrize("value", ["4821", "request", "index", "true"])
def test_a_header_s_value_that_occurs_in_the_journal_s_own_words_harms_nothing(value: str) -> None:
    one = record("fine")
    before = encode_line(RequestLine(one))
    Redactor([("x-build", value)], None).scrub_record(one)
    assert encode_line(RequestLine(one)) == before
