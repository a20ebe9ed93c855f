"""Every flag of vLLM's two clients is in the table, with vLLM's default, and is accepted in all its spellings."""

import json
from argparse import Namespace

import pytest
from command_lines import HERE, parse

from windtunnel.cli import flags, values
from windtunnel.cli.flags import GROUPS, SERVE_FLAGS, Flag
from windtunnel.errors import NotYet

BY_NAME = {name: flag for flag in SERVE_FLAGS for name in (flag.name, *flag.aliases)}
LISTS = {
    "python": (HERE / "vllm_flags_python.txt").read_text().split(),
    "rust": (HERE / "vllm_flags_rust.txt").read_text().split(),
}
VLLM_NAMES = sorted({*LISTS["python"], *LISTS["rust"]} - {"--help"})
OURS = [
    *("--embedded", "--connect-timeout-s", "--first-token-timeout-s", "--stall-timeout-s", "--request-timeout-s"),
    *("--retries", "--proxy", "--workers", "--runs-dir", "--max-failed-ratio"),
]

EXAMPLES = {
    values.TEXT: "text",
    values.PATH: "a/path",
    values.NAME: "name",
    values.URL: "http://host:1",
    values.LIST: "1,2",
    values.KEY_VALUE: "k=v",
    values.JSON: '{"k": 1}',
    values.RATIO: "0.5",
    values.SHARE: "0.5",
    values.TIMEOUT: "250ms",
    values.WAIT: "2",
}


def example(flag: Flag) -> list[str]:
    """Values that the flag takes."""
    if flag.kind is values.SWITCH:
        return []
    value = flag.choices[-1] if flag.choices else EXAMPLES.get(flag.kind, "7")
    return [value] * (2 if flag.nargs in ("*", "+", 2) else 1)


def accepted(tokens: list[str], flag: Flag) -> Namespace | None:
    """The values, or None for a flag that answers "not yet"."""
    from windtunnel.cli.bench_serve import parser

    if flag.built:
        return parser().parse(tokens).values
    with pytest.raises(NotYet, match=flag.name):
        parser().parse(tokens)
    return None


@pytest.mark.parametrize("name", VLLM_NAMES + OURS)
def test_a_flag_is_accepted_with_dashes_with_underscores_and_with_an_equals_sign(name: str) -> None:
    flag = BY_NAME[name]
    underscored = "--" + name[2:].replace("-", "_")
    dashed, under = (accepted([spelling, *example(flag)], flag) for spelling in (name, underscored))
    assert dashed == under
    assert dashed is None or getattr(dashed, flag.key) not in (None, False)
    if example(flag) and flag.nargs != 2:
        one = example(flag)[0]
        dashed, under = (accepted([f"{spelling}={one}"], flag) for spelling in (name, underscored))
        assert dashed == under == accepted([name, one], flag)


@pytest.mark.parametrize("flag", SERVE_FLAGS, ids=lambda flag: flag.name)
def test_a_flag_that_is_given_its_default_changes_nothing(flag: Flag) -> None:
    if flag.default is None or flag.kind is values.SWITCH:
        assert getattr(parse("").values, flag.key) == flag.default
        return
    text = json.dumps(flag.default) if isinstance(flag.default, dict) else str(flag.default)
    given = getattr(parse(f"{flag.name} '{text}'").values, flag.key)
    assert given == flag.default == getattr(parse("").values, flag.key)


@pytest.mark.parametrize("client", LISTS)
def test_the_table_has_whose_flag_each_is_right(client: str) -> None:
    origins = {"python": (flags.BOTH, flags.PYTHON), "rust": (flags.BOTH, flags.RUST)}[client]
    names = {flag.name for flag in SERVE_FLAGS if flag.origin in origins} - {"--config"}
    listed = set(LISTS[client]) - {"--help"}
    alias = {"--speed-bench-config": "--speed-bench-dataset-subset"}
    assert names == {alias.get(name, name) for name in listed} | ({"--no-self-timed"} & names)


def test_our_own_flags_are_those_that_are_promised() -> None:
    assert sorted(flag.name for flag in SERVE_FLAGS if flag.origin == flags.OURS) == sorted(OURS)


def test_the_defaults_are_those_of_vllm() -> None:
    table = {
        line["flag"]: line["default"]
        for line in map(json.loads, (HERE / "vllm_defaults.jsonl").read_text().splitlines())
    }
    ours_chosen_later = {
        "--endpoint",
        "--request-id-prefix",
        "--random-mm-bucket-config",
    }  # by backend; random; unbuilt
    assert len(table) > 90
    for name, default in table.items():
        if name not in ours_chosen_later:
            assert BY_NAME[name].default == (float("inf") if default == "inf" else default), name


def test_no_two_flags_share_a_name_and_each_has_a_group_and_a_help() -> None:
    names = [name for flag in SERVE_FLAGS for name in (flag.name, *flag.aliases)]
    assert len(set(names)) == len(names)
    assert all(flag.group in GROUPS and flag.help.endswith((".", "-")) for flag in SERVE_FLAGS)
