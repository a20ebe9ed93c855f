"""The parser of a command: made from its table of flags, it returns values or raises errors of windtunnel.

argparse does the splitting; names, negative numbers and dotted keys are put in order for it by `spelling`, and what it
has to complain about becomes a ConfigurationError.
"""

from __future__ import annotations

import argparse
import os
import re
import textwrap
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from windtunnel.cli.flags import Flag
from windtunnel.cli.spelling import Spelled, overlay, spell, unknown_flag
from windtunnel.cli.values import SWITCH
from windtunnel.errors import ConfigurationError, NotYet, did_you_mean

_WIDEST = 110
_HELP_FLAG = Flag("--help", "", SWITCH, False, "Show this; --help=WORD shows the flags that have to do with a word.")


class Parsed(NamedTuple):
    """What a command line says."""

    values: argparse.Namespace
    """Every flag by its key; defaults filled in."""
    given: frozenset[str]
    """The keys of the flags that the user wrote."""
    notes: list[str]
    """What the user should be told before the command runs."""


class Positional(NamedTuple):
    """An argument without a flag."""

    name: str
    nargs: str
    """`?`: it may be left out; `+`: one or more; empty: exactly one."""
    help: str

    @property
    def usage(self) -> str:
        """As it stands in the usage line."""
        return {"?": f"[{self.name}]", "+": f"{self.name} …", "": self.name}[self.nargs]


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of one command."""

    def __init__(
        self,
        command: str,
        summary: str,
        flags: Sequence[Flag],
        groups: Mapping[str, str],
        positional: Positional | None = None,
    ) -> None:
        super().__init__(
            prog=f"windtunnel {command}",
            usage=f"windtunnel {command} [flags]" + (f" {positional.usage}" if positional else ""),
            description=summary,
            formatter_class=_formatter,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
            argument_default=SUPPRESS,
        )
        self.command = command
        self.groups = dict(groups)
        self.positional = positional
        self.flags = tuple(flags)
        self.by_name = {name: flag for flag in flags for name in (flag.name, *flag.aliases)} | {"--help": _HELP_FLAG}
        for flag in self.flags:
            _add(self, flag)
        _add_positional(self, positional)

    def parse(self, tokens: Sequence[str]) -> Parsed:
        """Values of all flags.

        Prints the help and raises SystemExit where it is asked for. Raises UnknownFlag, NotYet or ConfigurationError.
        """
        self._show_help_if_asked(tokens)
        spelled = spell(tokens, self.by_name, self.command)
        self._show_help_if_asked(spelled.tokens)  # it may have been written short
        values = self._parse_spelled(spelled)
        given = frozenset(vars(values))
        for flag in self.flags:
            if flag.key not in given:
                setattr(values, flag.key, flag.default)
        refuse_what_is_not_built(self.flags, {key: getattr(values, key) for key in given})
        return Parsed(values, given, spelled.notes)

    def error(self, message: str) -> NoReturn:
        """As a ConfigurationError."""
        raise ConfigurationError(self.command, message, f"`{self.prog} --help` shows how it is used.")

    def format_help(self, word: str | None = None) -> str:
        """All flags by purpose, or those that have to do with `word`."""
        text = argparse.ArgumentParser(
            prog=self.prog, usage=self.usage, description=self.description, formatter_class=_formatter, add_help=False
        )
        _add_positional(text, self.positional)
        shown = [flag for flag in (*self.flags, _HELP_FLAG) if word is None or _concerns(flag, word)]
        for group, meaning in (self.groups | {"": ""}).items():
            section = text.add_argument_group(f"{group} ({meaning})" if meaning else group or "help")
            for flag in shown:
                if flag.group == group and flag.built:
                    _add(section, flag)
        text.epilog = _epilog(shown, word)
        return text.format_help()

    def _parse_spelled(self, spelled: Spelled) -> argparse.Namespace:
        try:
            # With flags between several arguments, argparse's usual way would take only those before the first flag.
            several = self.positional is not None and self.positional.nargs == "+"
            parse = self.parse_known_intermixed_args if several else self.parse_known_args
            values, extra = parse(spelled.tokens)
        except argparse.ArgumentError as error:
            raise self._translated(error) from None
        if extra:
            raise self._astray(extra[0])
        for name, keys in spelled.dotted.items():
            key = self.by_name[name].key
            base = getattr(values, key, None)
            setattr(values, key, overlay(base if isinstance(base, dict) else {}, keys))
        return values

    def _translated(self, error: argparse.ArgumentError) -> ConfigurationError:
        name = (error.argument_name or self.prog).split("/")[0]
        flag = self.by_name.get(name)
        message = str(error.message)
        if flag is None:
            return ConfigurationError(name, message, f"`{self.prog} --help` shows how it is used.")
        if message.startswith("ignored explicit argument"):  # argparse's words, with the value in them
            return ConfigurationError(name, "is a switch and takes no value", f"Write {name} alone, or leave it out.")
        if message.startswith("expected"):
            remedy = f"Write {name} {_metavar(flag)}. A value that begins with a dash is written {name}=-…"
            return ConfigurationError(name, "needs a value" if flag.nargs != 2 else "needs two values", remedy)
        return ConfigurationError(name, message, f"It takes {', '.join(flag.choices) or flag.kind.takes}.")

    def _astray(self, token: str) -> ConfigurationError | Exception:
        if token.startswith("-") and len(token) > 2:
            return unknown_flag(token.partition("=")[0], self.by_name, self.command)
        shown = re.split("[=:]", token)[0]  # what follows may be a secret
        shown += "…" if shown != token else ""
        remedy = f"A value with spaces in it needs quotes. `{self.prog} --help` lists all flags."
        if "--model" in self.by_name and shown == token:
            remedy = f"Is it the model? Write --model {token}. {remedy}"
        return ConfigurationError(self.command, f"{shown!r} belongs to no flag", remedy)

    def _show_help_if_asked(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if token in ("-h", "--help"):
                print(self.format_help(), end="")
                raise SystemExit(0)
            if token.startswith("--help="):
                word = token.partition("=")[2]
                print(self.format_help(None if word == "all" else word), end="")
                raise SystemExit(0)


def refuse_what_is_not_built(flags: Sequence[Flag], given: dict[str, Any]) -> None:
    """Raise NotYet, naming all that was given and is not built."""
    found = []
    for flag in flags:
        if flag.key not in given:
            continue
        value = given[flag.key]
        if value in flag.later if isinstance(value, str) else False:
            found.append(f"{flag.name} {value}")
        elif not flag.built and value != flag.default:
            found.append(flag.name)
    if found:
        raise NotYet(", ".join(found))


def _add(container: argparse._ActionsContainer, flag: Flag) -> None:
    options: dict[str, Any] = {"dest": flag.key, "help": _help_text(flag), "default": SUPPRESS}
    if flag.kind is SWITCH:
        options["action"] = "store_true"
    else:
        options |= {"type": _reader(flag), "metavar": _metavar(flag), "nargs": flag.nargs}
        if flag.bare is not None:
            options["const"] = flag.bare
        if flag.nargs in ("*", "+"):
            options["action"] = "extend"
    names = ["-h", flag.name] if flag is _HELP_FLAG else [flag.name, *flag.aliases]
    container.add_argument(*names, **options)


def _add_positional(parser: argparse.ArgumentParser, positional: Positional | None) -> None:
    if positional:
        parser.add_argument(
            positional.name.lower(),
            metavar=positional.name,
            nargs=positional.nargs or None,
            help=positional.help,
            default=None,
        )


def _reader(flag: Flag) -> Any:
    known = {choice.replace("_", "-"): choice for choice in (*flag.choices, *flag.later)}
    if not known:
        return flag.kind.read

    def read(text: str) -> str:
        choice = known.get(text.replace("_", "-"))
        if choice is None:
            raise argparse.ArgumentTypeError(f"{text!r} is unknown{did_you_mean(text, known.values())}")
        return choice

    return read


def _metavar(flag: Flag) -> str:
    return flag.metavar or flag.kind.metavar


def _help_text(flag: Flag) -> str:
    text = flag.help
    if flag.choices:
        text += f" One of: {', '.join(flag.choices)}."
    if flag.kind is not SWITCH and flag.default is not None:
        default = f"{flag.default:g}" if isinstance(flag.default, float) else flag.default
        text += f" [{default}]"
    return text.replace("%", "%%")


def _concerns(flag: Flag, word: str) -> bool:
    word = word.lower().replace("_", "-")
    return any(word in name for name in (flag.name, *flag.aliases)) or word == flag.group


def _epilog(shown: Sequence[Flag], word: str | None) -> str:
    parts = []
    if not shown:
        parts.append(f"No flag has to do with {word!r}.")
    later = {flag.name: flag.later for flag in shown if flag.later}
    later["flags"] = tuple(flag.name for flag in shown if not flag.built)
    if any(later.values()):
        parts.append("vLLM flags that are not implemented yet:")
    for title, names in later.items():
        if names:
            text = f"{title}: {', '.join(names)}"
            parts.append(
                textwrap.fill(text, _width(), initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
            )
    return "\n".join(parts)


def _width() -> int:
    """The terminal's; what `shutil` would say, which takes long to import."""
    try:
        width = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size().columns
    except (ValueError, OSError):
        width = 80
    return min(max(width, 40), _WIDEST)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """argparse's, with several values written as `A …`, and names never broken at their dashes."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        metavar = action.metavar if isinstance(action.metavar, str) else default_metavar
        if action.nargs in ("*", "+"):
            return f"{metavar} …"
        return super()._format_args(action, default_metavar)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def _formatter(prog: str) -> argparse.HelpFormatter:
    return _Formatter(prog, max_help_position=34, width=_width())
