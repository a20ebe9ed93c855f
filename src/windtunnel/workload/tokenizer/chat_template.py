"""Chat templates: the Jinja program, kept beside a tokenizer, that turns a conversation into a model's text."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from windtunnel.errors import MissingExtra, TokenizerError

if TYPE_CHECKING:
    import jinja2

    from windtunnel.workload.tokenizer.base import Messages

_TODAY = datetime(2025, 1, 1)
"""What templates that ask for the date are told. Dates of a format are of a length, and prompts don't change by day."""

_WITHOUT = "--skip-chat-template sends the dataset's prompts as they are."


class ChatTemplate:
    """A compiled template. `constants` are what it may name beside the messages, such as bos_token."""

    def __init__(self, tokenizer: str, source: str, constants: dict[str, str]) -> None:
        self._tokenizer = tokenizer
        self._constants = constants
        self._template = _compile(tokenizer, source)

    def render(self, messages: Messages, kwargs: dict[str, Any] | None = None) -> str:
        """The conversation's text, with the opening of the assistant's answer.

        Raises TokenizerError when the template refuses the messages.
        """
        names = {"add_generation_prompt": True, **self._constants, **(kwargs or {})}
        try:
            return self._template.render(messages=messages, **names)
        except Exception as error:  # a template is a program: whatever it raises is its answer
            raise TokenizerError(
                self._tokenizer, f"its chat template refuses the conversation: {error}", _WITHOUT
            ) from error


def no_template(tokenizer: str) -> TokenizerError:
    """The error for a tokenizer that has no chat template."""
    return TokenizerError(tokenizer, "has no chat template", _WITHOUT)


def _compile(tokenizer: str, source: str) -> jinja2.Template:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtra("a chat template", "jinja2", "hub") from error
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TokenizerError(
            tokenizer, f"its chat template is broken in line {error.lineno}: {error.message}", _WITHOUT
        ) from error


def _environment() -> jinja2.Environment:
    """Jinja as templates expect it: blocks leave no blank lines, `break` and `continue` work, JSON is not for HTML.

    Sandboxed, since a template is a stranger's program.
    """
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's words for training; here it is passed through."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _TODAY.strftime
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> NoReturn:
    raise ValueError(message)
