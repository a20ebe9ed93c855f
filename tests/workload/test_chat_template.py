"""Chat templates are Jinja programs of strangers."""

from __future__ import annotations

import sys

import pytest

from windtunnel.errors import MissingExtra, TokenizerError
from windtunnel.workload.tokenizer.chat_template import ChatTemplate

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]


def render(source: str, messages: list[dict[str, object]] = TALK, **kwargs: object) -> str:
    return ChatTemplate("model", source, {"bos_token": "<s>"}).render(messages, kwargs)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m['content'] }};{% endfor %}",
            "<s>user:hi;assistant:ho;",
        ),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("{{ {'a': 'é<'} | tojson }}", '{"a": "é<"}'),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}", "ho"),
        ("{{ strftime_now('%d %b %Y') | length }}", "11"),
        ("{{ tools is defined }}", "False"),
    ],
)
def test_a_template_reads_as_models_expect(source: str, text: str) -> None:
    assert render(source) == text


def test_the_users_settings_reach_the_template() -> None:
    assert render("{{ enable_thinking }}{{ add_generation_prompt }}", enable_thinking=False) == "FalseTrue"
    assert render("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "refuses the conversation"),
        ("{{ ''.__class__.__mro__ }}", "refuses the conversation"),
        ("{{ messages.append(1) }}", "refuses the conversation"),
    ],
)
def test_what_a_template_refuses_is_told(source: str, says: str) -> None:
    with pytest.raises(TokenizerError, match=says) as caught:
        render(source)
    assert "--skip-chat-template" in caught.value.advice


def test_a_broken_template_is_named_with_its_line() -> None:
    with pytest.raises(TokenizerError, match="broken in line 2"):
        render("fine\n{% if %}")


def test_without_jinja_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)  # as Python itself marks what can't be imported
    with pytest.raises(MissingExtra, match="jinja2"):
        render("x")
