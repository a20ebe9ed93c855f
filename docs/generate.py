"""Write the reference pages from the code: `docs/generate.py` writes them, `--check` names those that are stale."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path

from windtunnel.cli import bench_serve, runs
from windtunnel.cli.flags import GROUPS, Flag
from windtunnel.cli.main import COMMANDS
from windtunnel.cli.parser import CommandParser
from windtunnel.cli.values import SWITCH
from windtunnel.errors import WindtunnelError, classes
from windtunnel.measure.metrics import METRICS
from windtunnel.measure.rates import RATES

FOLDER = Path(__file__).parent / "reference"
_MADE = "<!-- Made by docs/generate.py from the code. Change it there. -->"
_HELP_COLUMNS = "100"


class _Placeholder:
    """Stands for a field's value in an example, whatever the template does to it."""

    def __init__(self, name: str) -> None:
        self._text = f"<{name}>"

    def __format__(self, spec: str) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text


def errors_page() -> str:
    """Every error, by family."""
    lines = [
        "# Errors",
        _MADE,
        "Each error has a code. On the command line it is told as what happened, the way out, and the code; in a "
        "journal or a result file it stands as its code and its facts, the fields that are in `<angle brackets>` here.",
    ]
    for family, members in groupby(sorted(classes(), key=_family_order), key=lambda cls: cls.family):
        rows = [_error_row(cls) for cls in members]
        lines += [f"## {family}", _table(["code", "class", "when", "message", "way out", "exit code"], rows)]
    return _page(lines)


def _family_order(cls: type[WindtunnelError]) -> int:
    return list(dict.fromkeys(c.family for c in classes())).index(cls.family)


def _error_row(cls: type[WindtunnelError]) -> list[str]:
    example = cls(**{field.name: _Placeholder(field.name) for field in fields(cls)})
    when = " ".join((cls.__doc__ or "").split())
    return [_code(cls.code), _code(cls.__name__), when, _code(example.message), _way_out(example), str(cls.exit_code)]


def _way_out(example: WindtunnelError) -> str:
    """Its words; where the error is given them when it is raised, that is said."""
    if example.way_out == "{remedy}":
        return "(as the case is)"
    parts = example.advice.split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]  # every other part is code
    return "`".join(parts)


def commands_page() -> str:
    """Every command with its flags."""
    lines = ["# Commands", _MADE]
    lines.append(_table(["command", ""], [[_code(f"windtunnel {n}"), c.summary] for n, c in COMMANDS.items()]))
    lines += ["## windtunnel bench serve", *_serve_flags(bench_serve.parser())]
    for parser in (runs.list_parser(), runs.show_parser(), runs.recover_parser(), runs.rm_parser()):
        lines += [f"## {parser.prog}", f"```text\n{parser.format_help()}```"]
    return _page(lines)


def _serve_flags(parser: CommandParser) -> Iterable[str]:
    yield (
        "All flags of `vllm bench serve`, of its Python and its Rust client, and our own. Names may have underscores "
        "instead of dashes (`--num_prompts`), a value may follow after `=`, and a name may be shortened as long as it "
        "is clear. Flags that take JSON may be written by key: `--extra-body.top_k 5`. What is marked *not yet* is "
        "known and answers so before anything is sent."
    )
    for group, meaning in GROUPS.items():
        members = [flag for flag in parser.flags if flag.group == group]
        rows = [_flag_row(flag) for flag in sorted(members, key=lambda flag: not flag.built)]
        yield f"### {group}"
        yield f"{meaning[0].upper()}{meaning[1:]}."
        yield _table(["flag", "default", "", "whose"], rows)


def _flag_row(flag: Flag) -> list[str]:
    value = "" if flag.kind is SWITCH else " " + (flag.metavar or flag.kind.metavar)
    value += " …" if flag.nargs in ("*", "+") else ""
    text = flag.help if flag.built else f"*Not yet.* {flag.help}"
    if flag.choices:
        text += f" One of: {', '.join(flag.choices)}."
    if flag.later:
        text += f" *Not yet:* {', '.join(flag.later)}."
    names = ", ".join(_code(name + value) for name in (flag.name, *flag.aliases))
    default = "" if flag.default is None or flag.default is False else _code(str(flag.default))
    return [names, default, text, flag.origin]


def metrics_page() -> str:
    """Every metric."""
    rows = [
        [_code(m.key), m.header, _code(m.formula), f"{m.unit} per {m.per}", m.better, m.doc] for m in METRICS.values()
    ]
    rates = [[_code(r.key), r.label, _code(r.formula), r.unit, r.better, r.doc] for r in RATES.values()]
    return _page(
        [
            "# Metrics",
            _MADE,
            "## Of requests and tokens",
            "Shown as mean, median, standard deviation and percentiles; `--percentile-metrics` chooses among them, and "
            "those per request can be bounded by `--goodput`. In the result file: `mean_KEY_ms`, `median_KEY_ms`, "
            "`std_KEY_ms`, `p99_KEY_ms`. A metric without data is left out.",
            _table(["key", "name", "formula", "unit", "better", ""], rows),
            "## Of a run",
            _table(["key", "name", "formula", "unit", "better", ""], rates),
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`"


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
}


def stale_pages(folder: Path) -> list[Path]:
    """The pages in `folder` that are not what the code says."""
    paths = {folder / name: make for name, make in PAGES.items()}
    return [path for path, make in paths.items() if not path.is_file() or path.read_text("utf-8") != make()]


def main(arguments: Sequence[str]) -> int:
    """Write the stale pages, or with `--check` only name them; 1 where there are any."""
    os.environ["COLUMNS"] = _HELP_COLUMNS
    stale = stale_pages(FOLDER)
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path} is stale: run docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(PAGES[path.name](), "utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
