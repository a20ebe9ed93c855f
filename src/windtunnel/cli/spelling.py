"""How flags may be written: the pass over the command line before argparse sees it.

Names have dashes or underscores and may be shortened, as in vLLM. `--flag.key value` sets one key of a flag that takes
JSON; the keys are gathered here and laid over the flag's value after parsing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from windtunnel.cli.flags import RUST, Flag
from windtunnel.cli.values import read_json, read_scaled_int
from windtunnel.errors import ConfigurationError, UnknownFlag, did_you_mean

_FAMILIAR = {"--api-key": "; the key is taken from the environment's OPENAI_API_KEY"}


class Spelled(NamedTuple):
    """A command line whose names are canonical."""

    tokens: list[str]
    dotted: dict[str, dict[str, Any]]
    """By the flag's name, the object that its dotted keys make."""
    notes: list[str]
    """What the user should be told."""


def spell(tokens: Sequence[str], flags: Mapping[str, Flag], command: str) -> Spelled:
    """Write all names as `flags` has them, and take the dotted ones out.

    Raises UnknownFlag, or ConfigurationError for a name that is short for several and for dots where they don't go.
    """
    out = Spelled([], {}, [])
    seen: set[str] = set()
    rest = iter(tokens)
    pending: str | None = None
    """A flag that takes one value, and has none yet."""
    for token in rest:
        if pending and _is_negative_number(token):  # argparse takes -1e5 and -inf for flags
            out.tokens[-1] = f"{pending}={token}"
            pending = None
            continue
        pending = None
        if not token.startswith("--") or token == "--":
            out.tokens.append(token)
            continue
        written, equals, value = token.partition("=")
        written, *keys = written.split(".")
        name = _resolve(written.replace("_", "-"), flags, command, out.notes)
        if keys:
            text = value if equals else next(rest, None)
            _set_dotted(out.dotted.setdefault(name, {}), flags[name], keys, text)
            continue
        if name in seen and flags[name].nargs not in ("*", "+") and flags[name].kind.metavar:
            out.notes.append(f"{name} is given more than once: the last one counts")
        seen.add(name)
        out.tokens.append(name + equals + value)
        if not equals and flags[name].nargs is None and flags[name].kind.metavar:
            pending = name
    return out


def overlay(base: dict[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `top` laid over it, at every depth; lists are joined."""
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        if isinstance(value, dict):
            merged[key] = overlay(old if isinstance(old, dict) else {}, value)
        elif isinstance(value, list) and isinstance(old, list):
            merged[key] = old + value
        else:
            merged[key] = value
    return merged


def unknown_flag(name: str, names: Iterable[str], command: str) -> UnknownFlag:
    """The error, with the name that was probably meant."""
    bare = name.lstrip("-").replace("_", "-")
    return UnknownFlag(name, command, _FAMILIAR.get(f"--{bare}") or did_you_mean(f"--{bare}", names))


def _resolve(name: str, flags: Mapping[str, Flag], command: str, notes: list[str]) -> str:
    """The full name. What is short for one flag of vLLM's Python client means that one, as it does there."""
    if name in flags:
        return name
    candidates = [known for known in flags if known.startswith(name)]
    python = [known for known in candidates if flags[known].origin.startswith("vLLM") and flags[known].origin != RUST]
    chosen = python or candidates
    if not chosen:
        raise unknown_flag(name, flags, command)
    if len(chosen) > 1:
        raise ConfigurationError(name, f"may be short for {', '.join(chosen)}", "Write the name in full.")
    if len(candidates) > 1:
        notes.append(f"{name} is read as {chosen[0]}, as vLLM does; it is also short for others")
    return chosen[0]


def _set_dotted(target: dict[str, Any], flag: Flag, keys: list[str], text: str | None) -> None:
    where = ".".join([flag.name, *keys])
    if not flag.kind.dotted:
        raise ConfigurationError(where, f"{flag.name} takes no JSON, so it has no keys", "Write the name without dots.")
    is_element = keys[-1].endswith("+")
    keys = [*keys[:-1], keys[-1].removesuffix("+")]
    if not all(keys):
        raise ConfigurationError(where, "a key is empty", f"Write {flag.name}.KEY VALUE, or {flag.name}.KEY.KEY VALUE.")
    if text is None or text.startswith("--"):
        raise ConfigurationError(where, "needs a value", f"Write {where} VALUE, or {where}=VALUE.")
    value: Any = text.split(",") if is_element else _read_dotted(text)
    for key in reversed(keys):
        value = {key: value}
    merged = overlay(target, value)
    target.clear()
    target.update(merged)


def _read_dotted(text: str) -> Any:
    """JSON where it is JSON; a whole number where it has a suffix (`4k`); otherwise the text itself."""
    for read in (read_json, read_scaled_int):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _is_negative_number(token: str) -> bool:
    if not token.startswith("-"):
        return False
    try:
        float(token)
    except ValueError:
        return False
    return True
