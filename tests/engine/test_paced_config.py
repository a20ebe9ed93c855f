"""The text of a paced target is read, or refused with the way out."""

from __future__ import annotations

import re

import pytest

from windtunnel.engine.paced.config import FAULTS, KEYS, PacedConfig, embedded_help, parse_paced
from windtunnel.engine.paced.faults import ANY, OF_WHOLE, STREAMED
from windtunnel.errors import ConfigurationError


@pytest.mark.parametrize("text", ["", "paced", "paced:", "paced:,"])
def test_nothing_said_is_the_default(text: str) -> None:
    assert parse_paced(text) == PacedConfig()


@pytest.mark.parametrize("text", ["paced:ttft=50ms,itl=0.01s,tokens=2", "ttft=50ms, itl=10ms,tokens=2"])
def test_durations_and_counts_are_read(text: str) -> None:
    assert parse_paced(text) == PacedConfig(ttft_s=0.05, itl_s=0.01, tokens=2)


@pytest.mark.parametrize("zero", ["0", "0.0", "0ms"])
def test_zero_needs_no_unit(zero: str) -> None:
    assert parse_paced(f"ttft={zero},usage=late:{zero}") == PacedConfig(ttft_s=0.0, usage="late", usage_delay_s=0.0)


def test_a_key_alone_switches_on() -> None:
    assert parse_paced("crlf,pings=1,role=0") == PacedConfig(crlf=True, pings=True, role=False)


def test_of_a_key_given_twice_the_last_counts() -> None:
    assert parse_paced("tokens=2,tokens=3").tokens == 3


def test_values_with_parts_of_their_own_are_read() -> None:
    config = parse_paced("usage=late:200ms,tls=c.pem:k.pem,tokenize=0,fault=429,fault_ratio=.25,retry_after=2")
    assert (config.usage, config.usage_delay_s) == ("late", 0.2)
    assert config.tls == ("c.pem", "k.pem")
    assert config.tokenize_status == 404
    assert (config.fault, config.fault_ratio, config.retry_after) == ("429", 0.25, "2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("paced:tft=50ms", "unknown key 'tft'; did you mean 'ttft'?"),
        ("pacd:ttft=50ms", "unknown target 'pacd'; did you mean 'paced'?"),
        ("vllm", "unknown target 'vllm'"),
        ("ttft=fast", "'ttft=fast': write a duration with its unit"),
        ("ttft=5", "'ttft=5': write a duration with its unit"),
        ("itl=1e-3", "write a duration with its unit"),
        ("itl=", "write a duration with its unit"),
        ("tokens=0", "write a whole number from 1"),
        ("tokens=two", "write a whole number from 1"),
        ("crlf=yes", "write 1 or 0"),
        ("crlf=", "write 1 or 0"),
        ("fault=truncate", "did you mean 'truncated'?"),
        ("fault=200", "write a status (400 to 599)"),
        ("fault_ratio=1.5", "write a share from 0 to 1"),
        ("finish=never", "write one of last, separate, none"),
        ("usage=late:soon", "write a duration with its unit"),
        ("usage=late:2", "write a duration with its unit"),
        ("tls=cert.pem", "write CERT.pem:KEY.pem"),
        ("tokenize=200", "write 1, 0 (404) or a status"),
        ("crlf,cr", "crlf and cr are both asked for"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_paced(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--embedded: ")
    assert caught.value.advice


def test_each_key_sets_a_field_and_each_field_has_a_key() -> None:
    fields = {key.field for key in KEYS.values()} | {"usage_delay_s"}
    assert fields == set(PacedConfig.__struct_fields__)


def test_each_fault_has_a_script_and_a_word_in_the_help() -> None:
    assert {*ANY, *STREAMED} == set(FAULTS)
    assert set(OF_WHOLE) == set(STREAMED)
    text = embedded_help()
    assert all(f"\n  {name}" in text for name in [*KEYS, *FAULTS])


def test_the_help_has_defaults_examples_that_are_right_and_lines_that_fit_a_terminal() -> None:
    text = embedded_help()
    assert "to its first token [50ms]" in text and "0: no [DONE] [1]" in text
    assert max(map(len, text.splitlines())) <= 120
    examples = re.findall(r"^  --embedded (paced\S*)", text, re.M)
    assert [parse_paced(example) for example in examples] == [
        PacedConfig(),
        PacedConfig(ttft_s=0.2, itl_s=0.02, tokens=2),
        PacedConfig(fault="reset", fault_ratio=0.1),
    ]


def test_an_error_in_a_value_names_the_help_that_explains_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_paced("fault=truncate")
    assert "`windtunnel bench serve --embedded help`" in caught.value.advice
