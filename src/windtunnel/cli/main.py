"""The `windtunnel` command: finds the command, runs it, and tells errors as people should read them."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from windtunnel import __version__
from windtunnel.cli.console import tell_error, tell_fault, tell_note
from windtunnel.cli.process_arguments import hide_in_process_title
from windtunnel.cli.secrets import known_secrets
from windtunnel.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_SIGINT,
    EXIT_USAGE,
    ConfigurationError,
    FileError,
    UnsupportedPlatform,
    WindtunnelError,
    did_you_mean,
)

_EXIT_BROKEN_PIPE = 141
"""As of a program that SIGPIPE ended."""


class Command(NamedTuple):
    """A command, and the module whose `run(arguments)` is called for it; it is imported no sooner."""

    summary: str
    module: str
    function: str = "run"


COMMANDS: dict[str, Command] = {
    "bench serve": Command("benchmark an endpoint under load", "windtunnel.cli.bench_serve"),
    "catalog check": Command("find errors without a message, and other faults", "windtunnel.cli.catalog_check"),
    "catalog diff": Command("what errors two versions differ in", "windtunnel.cli.catalog_diff"),
    "catalog export": Command("write a project's records to files", "windtunnel.cli.catalog_export"),
    "catalog index": Command("read the errors of a source tree", "windtunnel.cli.catalog_index"),
    "catalog list": Command("list the projects of the catalog", "windtunnel.cli.catalog_list"),
    "catalog remove": Command("remove a project", "windtunnel.cli.catalog_remove"),
    "catalog search": Command("search records by words", "windtunnel.cli.catalog_search"),
    "catalog serve": Command("show the catalog in a browser", "windtunnel.cli.catalog_serve"),
    "catalog show": Command("show a record", "windtunnel.cli.catalog_show"),
    "catalog verify": Command("check explanations against the code", "windtunnel.cli.catalog_verify"),
    "catalog watch": Command("follow a log and name its errors", "windtunnel.cli.catalog_watch"),
    "drill": Command("do things to a target under load, and see what users saw", "windtunnel.cli.drill"),
    "engine": Command("serve a small mixture-of-experts model", "windtunnel.cli.engine"),
    "eplb plan": Command("plan where experts should live, for a recorded load", "windtunnel.cli.eplb_plan"),
    "eplb replay": Command("put a recorded load through policies, side by side", "windtunnel.cli.eplb_replay"),
    "explain": Command("what an error means: a line, a log, a traceback", "windtunnel.cli.explain"),
    "runs list": Command("list the runs that are kept", "windtunnel.cli.runs", "run_list"),
    "runs show": Command("show a run", "windtunnel.cli.runs", "run_show"),
    "runs recover": Command("report a run that was cut off", "windtunnel.cli.runs", "run_recover"),
    "runs rm": Command("remove runs", "windtunnel.cli.runs", "run_rm"),
}

_EXIT_CODES = """\
exit codes
  0    all is well
  1    the run failed: no request completed, or an error of windtunnel's own
  2    a flag, a file or the way they are combined makes no sense; nothing was sent
  3    the run ended, but its figures are not valid; it says why
  130  interrupted (SIGINT); 143: terminated (SIGTERM); what was measured is reported and saved

WINDTUNNEL_DEBUG=1 shows the traceback of any error. NO_COLOR=1 turns colours off."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what its encoding lacks, as stderr does it
    hide_in_process_title(known_secrets(arguments, os.environ))
    try:
        arguments = [_in_utf8(argument) for argument in arguments]
        code = _run(arguments)
        sys.stdout.flush()  # an error of it can still be told here
        return code
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else EXIT_FAILED
    except KeyboardInterrupt:  # in a run's measured part it is handled there
        tell_note("interrupted before anything was measured")
        return EXIT_SIGINT
    except WindtunnelError as error:
        tell_error(error, arguments)
        return error.exit_code
    except OSError as error:
        return _tell_os_error(error, arguments)
    except Exception as error:
        tell_fault(error, arguments)
    return EXIT_FAILED


def _open_missing_streams() -> None:
    """We may be started with standard streams closed: what goes there goes nowhere, and no file is put there."""
    for number, mode in ((0, "r"), (1, "w"), (2, "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            stream = open(number, mode, closefd=False)  # noqa: SIM115  it stays open as long as we run
            setattr(sys, ("stdin", "stdout", "stderr")[number], stream)


def _in_utf8(argument: str) -> str:
    """As it was written, whatever the locale takes it for. Raises ConfigurationError for bytes that are no UTF-8."""
    if argument.isascii() or not any("\ud800" <= character <= "\udfff" for character in argument):
        return argument
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeDecodeError as error:
        remedy = "Write it in UTF-8; a file of such a name can be given another."
        raise ConfigurationError("command line", f"{argument!a} holds bytes that are no UTF-8", remedy) from error


def require_linux(platform: str) -> None:
    """Raise UnsupportedPlatform where `platform` (`sys.platform`'s words) is no Linux."""
    if platform != "linux":
        raise UnsupportedPlatform(platform)


def _run(arguments: list[str]) -> int:
    words: list[str] = []
    for argument in arguments[:2]:
        if argument.startswith("-"):
            break
        words.append(argument)
    if words[:1] and words[0] in COMMANDS:  # what follows is its argument
        words = words[:1]
    rest = arguments[len(words) :]
    name = " ".join(words)
    if command := COMMANDS.get(name):
        if not any(word == "-h" or word.startswith("--help") for word in rest):
            require_linux(sys.platform)
        code: int = getattr(import_module(command.module), command.function)(rest)
        return code
    if rest[:1] == ["--version"]:
        print(f"windtunnel {__version__}")
        return EXIT_OK
    if not name or any(known.startswith(f"{name} ") for known in COMMANDS):
        return _run_group(name, rest)
    raise _unknown_command(words)


def _run_group(name: str, rest: list[str]) -> int:
    """`windtunnel`, `windtunnel bench`: help, or an error that names the word which is missing."""
    if rest and rest[0] not in ("-h", "--help"):
        flag = rest[0].partition("=")[0]
        remedy = f"`windtunnel {name} --help` lists the commands."
        if name in ("", "bench"):
            remedy = f"Write `windtunnel bench serve {flag} …`: the word serve names the command."
        raise ConfigurationError(name or "windtunnel", f"no command stands before {flag}", remedy)
    _show_help(name)
    return EXIT_OK if rest else EXIT_USAGE


def _show_help(name: str) -> None:
    title = f"windtunnel {name}".strip()
    lines = ["A wind tunnel for LLM serving: load it, measure it, read what happened.", ""] if not name else []
    lines += [f"usage: {title} COMMAND [flags]", "", "commands"]
    lines += [f"  {known:16}{c.summary}" for known, c in COMMANDS.items() if known.startswith(name)]
    lines += ["", f"`{title} COMMAND --help` shows the flags of one."]
    if not name:
        lines += ["`windtunnel --version` shows the version.", "", _EXIT_CODES]
    print("\n".join(lines))


def _unknown_command(words: list[str]) -> ConfigurationError:
    written = " ".join(words)
    siblings = [name for name in COMMANDS if name.startswith(f"{words[0]} ")]
    meant = did_you_mean(written, siblings or COMMANDS) or did_you_mean(words[0], {n.split()[0] for n in COMMANDS})
    remedy = f"There are: {', '.join(siblings)}." if siblings else "`windtunnel --help` lists the commands."
    return ConfigurationError(written, f"no such command{meant}", remedy)


def _tell_os_error(error: OSError, arguments: list[str]) -> int:
    """Errors of files and sockets are translated where they happen; what comes here is mostly the standard output's."""
    if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout.fileno()):
        _silence_output()
        return _EXIT_BROKEN_PIPE
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        _silence_output()
        reason = error.strerror or str(error)
        tell_error(FileError("write to", "the standard output", reason, "Send it to where there is room."), arguments)
    else:
        tell_fault(error, arguments)
    return EXIT_FAILED


def _has_no_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _silence_output() -> None:
    """Let what can't be written go nowhere: the interpreter would complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
