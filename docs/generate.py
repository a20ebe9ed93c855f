"""Write the reference pages from the code: `docs/generate.py` writes them, `--check` names those that are stale."""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import get_args

from transaction_diagram import with_diagrams
from windtunnel.catalog.export import record_schema
from windtunnel.cli import (
    bench_serve,
    catalog_check,
    catalog_diff,
    catalog_export,
    catalog_index,
    catalog_list,
    catalog_remove,
    catalog_search,
    catalog_serve,
    catalog_show,
    catalog_verify,
    catalog_watch,
    drill,
    engine,
    eplb_plan,
    eplb_replay,
    explain,
    runs,
)
from windtunnel.cli.flags import GROUPS, Flag
from windtunnel.cli.main import _EXIT_CODES, COMMANDS
from windtunnel.cli.parser import CommandParser
from windtunnel.cli.values import SWITCH
from windtunnel.clock import ClockPair
from windtunnel.drill import scenario
from windtunnel.drill.reading import open_scenario, shipped_names
from windtunnel.drill.schema import scenario_schema
from windtunnel.engine.moe.front.metrics import METRICS as ENGINE
from windtunnel.engine.paced.config import FAULTS, KEYS
from windtunnel.eplb.metrics import METRICS as EPLB
from windtunnel.errors import WindtunnelError, classes
from windtunnel.loadgen import journal
from windtunnel.loadgen.config import OutputConfig
from windtunnel.measure.causes import CatalogRecord, Cause
from windtunnel.measure.metrics import METRICS
from windtunnel.measure.notes import Note, PromptMismatch
from windtunnel.measure.rates import RATES
from windtunnel.measure.record import COMPLETED_ENDINGS, FAILED_ENDINGS, Fault, Record, TokenSource
from windtunnel.measure.run import RampUp, RunEnd, RunFacts
from windtunnel.measure.validity import Instrument, Invalid, Spread
from windtunnel.report import drill as drill_report
from windtunnel.report import result

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
        "Each error has a code. On the command line it is told as what happened, how to fix it, and the code; in a "
        "journal or a result file it stands as its code and its facts, the fields that are in `<angle brackets>` here. "
        "What the exit codes mean: `windtunnel --help`, and [commands](commands.md#exit-codes).",
    ]
    for family, members in groupby(sorted(classes(), key=_family_order), key=lambda cls: cls.family):
        rows = [_error_row(cls) for cls in members]
        lines += [f"## {family}", _table(["code", "class", "when", "message", "fix", "exit code"], rows)]
    return _page(lines)


def _family_order(cls: type[WindtunnelError]) -> int:
    return list(dict.fromkeys(c.family for c in classes())).index(cls.family)


def _error_row(cls: type[WindtunnelError]) -> list[str]:
    example = cls(**{field.name: _Placeholder(field.name) for field in fields(cls)})
    when = " ".join((cls.__doc__ or "").split())
    return [_code(cls.code), _code(cls.__name__), when, _code(example.message), _fix(example), str(cls.exit_code)]


def _fix(example: WindtunnelError) -> str:
    """What to do; where that depends on the case, each; where it is given when the error is raised, that is said."""
    if example.way_out == "{remedy}":
        return "(as the case is)"
    if not example.cases:
        return _escaped(example.advice)
    cases = [f"*{case}*: {_escaped(text)}" for case, text in (*example.cases.items(), ("else", example.way_out))]
    return "<br>".join(cases)


def _escaped(text: str) -> str:
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]  # every other part is code
    return "`".join(parts)


def commands_page() -> str:
    """Every command with its flags."""
    lines = ["# Commands", _MADE]
    lines.append(_table(["command", ""], [[_code(f"windtunnel {n}"), c.summary] for n, c in COMMANDS.items()]))
    lines += ["## windtunnel bench serve", *_serve_flags(bench_serve.parser())]
    catalog = (catalog_index, catalog_list, catalog_remove, catalog_search, catalog_show, catalog_diff, catalog_check)
    plain = [
        module.parser()
        for module in (
            engine,
            eplb_plan,
            eplb_replay,
            explain,
            *catalog,
            catalog_export,
            catalog_verify,
            catalog_watch,
            catalog_serve,
            drill,
        )
    ]
    for parser in (*plain, runs.list_parser(), runs.show_parser(), runs.recover_parser(), runs.rm_parser()):
        lines += [f"## {parser.prog}", f"```text\n{parser.format_help()}```"]
    lines += ["## exit codes", f"```text\n{_EXIT_CODES}\n```"]
    return _page(lines)


def _serve_flags(parser: CommandParser) -> Iterable[str]:
    yield (
        "Every flag of `vllm bench serve`, of its Python and its Rust client, and our own. Names may have underscores "
        "instead of dashes (`--num_prompts`), a value may follow after `=`, and a name may be shortened as long as it "
        "is clear. Flags that take JSON may be written by key: `--extra-body.top_k 5`. What is marked *not yet* is "
        "known, but not implemented: it says so before anything is sent."
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
    exported = [[_code(m.name), m.kind, m.label and _code(m.label), m.doc] for m in EPLB]
    served = [[_code(m.name), m.kind, m.label and _code(m.label), m.doc] for m in ENGINE]
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
            "## Of eplb, for Prometheus",
            "What `Rebalancer.metrics` exports; a gauge that is not known yet is left out.",
            _table(["metric", "kind", "label", ""], exported),
            "## Of the engine, for Prometheus",
            "What `windtunnel engine` exports at /metrics beside those of eplb: vLLM's names where they exist, each "
            "with the label `model_name`.",
            _table(["metric", "kind", "label", ""], served),
        ]
    )


def embedded_page() -> str:
    """What can be written after `--embedded`."""
    return _page(
        [
            "# Embedded targets",
            _MADE,
            "`windtunnel bench serve --embedded` starts a target of our own in a process of its own, on a free port of "
            "this machine, for as long as the run. There are two. `engine`, what `--embedded` alone means, is a small "
            "mixture-of-experts model that really computes; what stands after the colon are the flags of "
            "[`windtunnel engine`](commands.md#windtunnel-engine). `paced` is an OpenAI-compatible server that sends "
            "made-up tokens at exact instants, and odd or broken answers on demand; its keys follow, and "
            "`--embedded help` prints them.",
            "```console\n"
            "$ windtunnel bench serve --embedded\n"
            "$ windtunnel bench serve --embedded engine:ranks=8,slots_per_rank=4\n"
            "$ windtunnel bench serve --embedded paced:ttft=200ms,itl=20ms,tokens=2\n"
            "$ windtunnel bench serve --embedded paced:fault=reset,fault_ratio=0.1\n"
            "```",
            "A duration has a unit (`us`, `ms`, `s`, `min`); only 0 needs none. A key alone means `KEY=1`. Of a key "
            "that is given twice the last counts.",
            "## Keys of paced",
            _table(
                ["key", "values", "default", ""],
                [
                    [_code(name), _code(k.form), _code(k.default) if k.default else "", k.doc]
                    for name, k in KEYS.items()
                ],
            ),
            "## Faults of paced",
            "What `fault=` can be, beside a status from 400 to 599.",
            _table(["fault", ""], [[_code(name), doc] for name, doc in FAULTS.items()]),
        ]
    )


_JOURNAL_PARTS: dict[str, tuple[type, ...]] = {
    "header": (journal.Header, ClockPair, RunFacts, RampUp, OutputConfig),
    "start": (journal.StartLine,),
    "clock": (journal.ClockLine,),
    "request": (journal.RequestLine, Record, Fault),
    "end": (journal.EndLine, RunEnd),
}
"""The journal's lines, each with the types that its fields have."""

_RESULT_KEYS = {
    "schema_version": "of this key; a number that grows when a reader has to change",
    "run": "what was asked for: `RunFacts`, as in the journal's header",
    "end": "when the measured part began and ended, and why: `RunEnd`",
    "valid": "the figures may be used; false also where nothing completed",
    "invalid": "why they may not: a list of `Invalid`",
    "endings": "how many requests ended in which way",
    "failures": "failed requests by cause, the most frequent first: a list of `Cause`",
    "warnings": "what was odd in requests that completed: a list of `Cause`",
    "notes": "what a reader should know beside the figures: a list of `Note`",
    "instrument": "what the client itself adds to the figures: `Instrument`, and `statement`, the same in words",
    "prompt_mismatch": "prompt lengths as asked and as the server counts them: `PromptMismatch`; null without usage",
    "output_tokens_from": "how many completed requests have their number of output tokens from where",
    "sample_counts": "by metric: the number of values that its mean and percentiles are of",
    "requests": "only with --save-detailed: an array for each of the columns below, in the order of the run",
}
_RESULT_PARTS = (Invalid, Cause, CatalogRecord, Note, Instrument, Spread, PromptMismatch)


def files_page() -> str:
    """The journal, and our part of the result file."""
    lines = [
        "# Files",
        _MADE,
        "Every run leaves a **journal**, in a folder of its own in the runs folder; `--save-result` also writes a "
        "**result file**. Instants are nanoseconds of CLOCK_MONOTONIC; a name ends in its unit (`_ns`, `_ms`, `_s`, "
        "`_bytes`, `_ratio`). Recorded loads and placements of eplb are npz files, described where they are made: "
        "[load traces](../how-to/record-load-traces.md), [placements](../how-to/plan-a-placement.md).",
        "## journal.jsonl",
        "One JSON object a line; its `type` says which of the lines below it is. Lines are written as things happen, "
        "so requests stand in the order in which they were over; `index` is a request's place in the run. A field of a "
        "`request` line that is absent has the default given here (`None`: it was not observed). A run that was "
        "killed has no `end` line, and its last line may be torn.",
        f"`output_tokens_from` is one of {_listed(get_args(TokenSource))}: the server's usage, the chunks' own token "
        "ids or log probabilities, our tokenizer over the text, or the bare number of chunks. A `ClockPair` is an "
        "array of its two numbers. How a request ended follows from the rest and is not in the journal: completed as "
        f"{_listed(COMPLETED_ENDINGS)}, or failed as {_listed(FAILED_ENDINGS)}.",
        "**Privacy.** The text of each answer is in every journal, whether or not a result file was asked for; "
        "prompts are not (a server may quote one in an error). API keys and the values of headers are in none. "
        "`windtunnel runs rm` removes a run.",
    ]
    for line_type, types in _JOURNAL_PARTS.items():
        lines.append(f"### {line_type}")
        lines += _described(types)
    lines += [
        "## The result file",
        "vLLM's keys come first, with vLLM's names, order and units: durations in seconds (`duration`, `ttfts`, "
        "`itls`, `latencies`, `start_times`, `queue_times`), or in ms where the name ends in `_ms`. Aggregates of our "
        "own metrics stand among them under names of the same form; one without data is left out. All else of ours is "
        "under the key `windtunnel`, where names end in `_ns` or `_ms` and what was not observed is null:",
        _table(["key", ""], [[_code(key), doc] for key, doc in _result_keys().items()]),
    ]
    lines += _described(_RESULT_PARTS)
    lines += [
        "### requests",
        f"{_listed(_names_in(result.request_columns))}. `ending` is how the request ended, `code` that of its failure; "
        "the others are `Record`'s.",
    ]
    return _page(lines)


def _result_keys() -> dict[str, str]:
    """What each key is; raises ValueError where this page and the code don't have the same keys."""
    there = {*_names_in(result._ours), "requests"} - {"statement"}
    if there != set(_RESULT_KEYS):
        raise ValueError(
            f"docs/generate.py describes other keys than report/result.py writes: {there ^ set(_RESULT_KEYS)}"
        )
    return _RESULT_KEYS


def _names_in(function: Callable[..., object]) -> list[str]:
    """The keys of the dict that a function makes: literal ones, assigned ones, and those in a tuple of names."""
    names: list[str] = []
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Dict):
            names += [key.value for key in node.keys if isinstance(key, ast.Constant)]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            names.append(ast.literal_eval(node.targets[0].slice))
        elif isinstance(node, ast.Tuple) and len(node.elts) > 2:
            names += [element.value for element in node.elts if isinstance(element, ast.Constant)]
    return list(dict.fromkeys(names))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(_code(name) for name in names)


def scenarios_page() -> str:
    """What a drill's scenario can say, and what its result says."""
    rows = [[_code(name), open_scenario(name).scenario.title] for name in shipped_names()]
    figures = [[_code(key), doc] for key, doc in drill_report.FIGURES.items()]
    return _page(
        [
            "# Scenarios of drills",
            _MADE,
            "A scenario is a YAML file for `windtunnel drill`; an unknown key is an error. Editors can check it by "
            "[its JSON schema](scenario.schema.json). How to write one: [run a drill](../how-to/run-a-drill.md).",
            "## Shipped scenarios",
            _table(["name", ""], rows),
            "## The file",
            "A key that ends in `_s` takes seconds, or text with a unit (`250ms`). `Seconds` are from 0, `Positive` is "
            "above 0, a `Share` is above 0 and at most 1; a `Rank` is counted from 0.",
            *_described(_SCENARIO_PARTS),
            "## What can be expected",
            _table(["figure", ""], figures),
            "A bound is a number, or `<`, `<=`, `==`, `!=`, `>=`, `>` and a number: `< 5`. YAML wants quotes around "
            "what begins with `>`. A figure that is absent keeps to nothing.",
            "## The result",
            "What `--json` prints.",
            *_described(_DRILL_PARTS),
        ]
    )


_SCENARIO_PARTS = (
    scenario.Scenario,
    scenario.Target,
    scenario.Action,
    scenario.SlowRank,
    scenario.FailAt,
    scenario.Http,
    scenario.Exec,
    scenario.Signal,
    scenario.Delay,
    scenario.Bandwidth,
    scenario.Drop,
    scenario.Reset,
    scenario.Cut,
)
_DRILL_PARTS = (
    drill_report.Drill,
    drill_report.Figures,
    drill_report.Expectation,
    drill_report.ActionReport,
    drill_report.Phase,
    drill_report.Event,
    drill_report.Series,
)


def schema_file() -> str:
    """The JSON schema of scenarios."""
    return json.dumps(scenario_schema(), indent=2) + "\n"


def _described(types: Iterable[type]) -> Iterable[str]:
    """Each type's summary and its fields."""
    for cls in types:
        yield f"`{cls.__name__}`: {' '.join((cls.__doc__ or '').split())}"
        rows = list(_field_rows(cls))
        columns = [0, 1, 2, 3] if any(row[2] for row in rows) else [0, 1, 3]
        head = ["field", "type", "default", ""]
        yield _table([head[c] for c in columns], [[row[c] for c in columns] for row in rows])


def _field_rows(cls: type) -> Iterable[list[str]]:
    """Fields as the class's source has them, with the text that stands below each."""
    definition = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(definition, ast.ClassDef)
    for node, below in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = "" if node.value is None else _code(_default(node.value, cls))
            yield [_code(node.target.id), _code(ast.unparse(node.annotation)), default, _text_of(below)]


def _default(value: ast.expr, cls: type) -> str:
    """As it is written; of a constant its value, of `field(default_factory=lambda: …)` what the function gives."""
    if isinstance(value, ast.Name):
        return repr(getattr(sys.modules[cls.__module__], value.id))
    if isinstance(value, ast.Call) and isinstance(value.keywords[0].value, ast.Lambda):
        return ast.unparse(value.keywords[0].value.body)
    return ast.unparse(value)


def _text_of(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`"


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


def architecture_page() -> str:
    """The page as it is, its diagrams made anew."""
    return with_diagrams((DOCS / "architecture.md").read_text("utf-8"))


def record_schema_page() -> str:
    """The JSON Schema of a record of the catalog."""
    return json.dumps(record_schema(), indent=2, ensure_ascii=False) + "\n"


DOCS = Path(__file__).parent
PAGES: dict[str, Callable[[], str]] = {
    "architecture.md": architecture_page,
    "reference/commands.md": commands_page,
    "reference/embedded.md": embedded_page,
    "reference/error-record.schema.json": record_schema_page,
    "reference/errors.md": errors_page,
    "reference/files.md": files_page,
    "reference/metrics.md": metrics_page,
    "reference/scenario.schema.json": schema_file,
    "reference/scenarios.md": scenarios_page,
}


def stale_pages() -> dict[Path, str]:
    """The pages that are not what the code says, and what they should be."""
    pages = {DOCS / name: make() for name, make in PAGES.items()}
    return {path: text for path, text in pages.items() if not path.is_file() or path.read_text("utf-8") != text}


def main(arguments: Sequence[str]) -> int:
    """Write the stale pages, or with `--check` only name them; 1 where there are any."""
    os.environ["COLUMNS"] = _HELP_COLUMNS
    stale = stale_pages()
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path} is stale: run docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
