"""How a command line may be written, and what is said about one that can't be read."""

import pytest
from command_lines import config_of, notes_of, parse
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.cli.spelling import overlay
from windtunnel.cli.values import read_scaled_int
from windtunnel.errors import ConfigurationError, NotYet, UnknownFlag


def test_several_values_may_follow_a_flag() -> None:
    values = parse("--goodput ttft:200 e2el:5000 --metadata a=b c=d --header K=V K2=V2 --lora-modules x y").values
    assert values.goodput == ["ttft:200", "e2el:5000"]
    assert values.metadata == ["a=b", "c=d"]
    assert values.header == ["K=V", "K2=V2"]
    assert values.lora_modules == ["x", "y"]


def test_flags_with_several_values_add_up_when_they_are_given_again() -> None:
    values = parse("--header A=1 --seed 3 --header B=2 C=3 --metadata=a=b --metadata=c=d").values
    assert values.header == ["A=1", "B=2", "C=3"]
    assert values.metadata == ["a=b", "c=d"]


def test_the_last_of_two_values_counts_and_that_is_said() -> None:
    parsed = parse("--seed 1 --num-prompts 2 --seed 3")
    assert parsed.values.seed == 3
    assert parsed.notes == ["--seed is given more than once: the last one counts"]


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("--extra-body.top_k 5", {"top_k": 5}),
        ("--extra-body.a.b=true", {"a": {"b": True}}),
        ("--extra_body.top_k 5", {"top_k": 5}),
        ("--extra-body.s hello", {"s": "hello"}),
        ("--extra-body.s '\"5\"'", {"s": "5"}),
        ("--extra-body.n 4k --extra-body.m 4K --extra-body.x 1.5k", {"n": 4000, "m": 4096, "x": 1500}),
        ("--extra-body.n NaN", {"n": "NaN"}),
        ("--extra-body.n -0.5", {"n": -0.5}),
        ("--extra-body.stop+ a,b --extra-body.stop+=c", {"stop": ["a", "b", "c"]}),
        ('--extra-body \'{"a": {"x": 1}, "b": 2}\' --extra-body.a.y 3', {"a": {"x": 1, "y": 3}, "b": 2}),
        ('--extra-body.a.y 3 --extra-body \'{"a": {"x": 1, "y": 2}}\'', {"a": {"x": 1, "y": 3}}),
        ("--extra.top_k 5", {"top_k": 5}),
    ],
)
def test_dotted_keys_make_json_and_are_laid_over_it(line: str, body: dict[str, object]) -> None:
    assert config_of(line).extra_body == body


def test_dotted_keys_work_for_every_flag_that_takes_json() -> None:
    config = config_of(
        "--chat-template-kwargs.thinking true --random-range-ratio.input 0.3 --random-range-ratio.output 0"
    )
    assert config.dataset.chat_template_kwargs == {"thinking": True}
    assert (config.dataset.input_range_ratio, config.dataset.output_range_ratio) == (0.3, 0.0)
    assert parse('--random-mm-limit-mm-per-prompt \'{"image": 255, "video": 1}\'').given == {
        "random_mm_limit_mm_per_prompt"
    }


def test_a_dotted_key_of_a_flag_that_is_not_built_is_refused_like_the_flag() -> None:
    with pytest.raises(NotYet, match="--random-mm-limit-mm-per-prompt"):
        parse("--random-mm-limit-mm-per-prompt.image 3")


@pytest.mark.parametrize("text", ["-1", "-0.5", "-.5", "-1e-3", "-1E5"])
def test_negative_numbers_are_values(text: str) -> None:
    assert parse(f"--presence-penalty {text} --seed 1").values.presence_penalty == float(text)


def test_a_name_that_is_short_for_one_flag_is_that_flag() -> None:
    assert parse("--num-prom 3 --stall 4s").values.num_prompts == 3
    assert parse("--num-prom 3 --stall 4s").values.stall_timeout_s == 4.0


def test_a_name_that_is_short_for_one_flag_of_vllm_alone_is_that_one_and_it_is_said() -> None:
    parsed = parse("--max 7")
    assert parsed.values.max_concurrency == 7
    assert "--max is read as --max-concurrency" in parsed.notes[0]


def test_a_name_that_is_short_for_several_flags_is_refused_with_their_names() -> None:
    with pytest.raises(ConfigurationError, match=r"--ramp-up-st: .*--ramp-up-strategy, --ramp-up-start-rps"):
        parse("--ramp-up-st 7")


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("--num-promts 3", "did you mean --num-prompts?"),
        ("--concurrency=3", "did you mean --max-concurrency?"),
        ("-model x", "did you mean --model?"),
        ("--Model x", "did you mean --model?"),
        ("--api-key=sk-123", "OPENAI_API_KEY"),
    ],
)
def test_an_unknown_flag_gets_the_name_that_was_probably_meant(line: str, suggestion: str) -> None:
    with pytest.raises(UnknownFlag) as caught:
        parse(line)
    assert suggestion in caught.value.message
    assert "sk-123" not in caught.value.message
    assert "windtunnel bench serve --help" in caught.value.advice


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--seed", "--seed: needs a value"),
        ("--label --seed 3", "--label: needs a value"),
        ("--goodput", "--goodput: needs a value"),
        ("--compare a", "--compare: needs two values"),
        ("--ignore-eos=true", "--ignore-eos: is a switch and takes no value"),
        ("--seed x", "--seed: 'x' is not a whole number"),
        ("--seed -1", "--seed: -1 is below 0"),
        ("--num-prompts 0", "--num-prompts: 0 is below 1"),
        ("--port 65536", "--port: 65536 is above 65535"),
        ("--temperature nan", "--temperature: 'nan' is not a number"),
        ("--temperature inf", "--temperature: 'inf' is not finite"),
        ("--request-rate 0", "--request-rate: 0 is not above 0"),
        ("--request-rate -inf", "--request-rate: -inf is not above 0"),
        ("--burstiness 0", "--burstiness: 0 is not above 0"),
        ("--max-concurrency 0", "--max-concurrency: 0 is below 1"),
        ("--retries -1", "--retries: -1 is below 0"),
        ("--workers 0", "--workers: 0 is below 1"),
        ("--max-failed-ratio 1.5", "--max-failed-ratio: 1.5 is above 1"),
        ("--stall-timeout-s 0", "--stall-timeout-s: 0 is not above 0"),
        ("--connect-timeout-s 5x", "--connect-timeout-s: '5x' is not a duration"),
        ("--top-k 99999999999999999999", "--top-k: 99999999999999999999 has more than 63 bits"),
        ("--backend vlm", "--backend: 'vlm' is unknown; did you mean vllm?"),
        ("--extra-body [1]", "--extra-body: '[1]' is not a JSON object"),
        ("--extra-body '{\"a\": NaN}'", "NaN is not JSON"),
        ("--extra-body.a", "--extra-body.a: needs a value"),
        ("--extra-body.a --seed 3", "--extra-body.a: needs a value"),
        ("--extra-body. 3", "--extra-body.: a key is empty"),
        ("--seed.x 3", "--seed.x: --seed takes no JSON"),
        ("llama", "'llama' belongs to no flag"),
        ("--ignore-eos x=secret", "'x…' belongs to no flag"),
        ("-- x", "belongs to no flag"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_its_flag_and_the_way_out(line: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(line)
    assert message in caught.value.message
    assert "secret" not in caught.value.message
    assert len(caught.value.advice) > 5


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("--dataset-name hf --hf-split train --model x", "--dataset-name hf, --hf-split"),
        ("--dataset-name speed-bench", "--dataset-name speed_bench"),
        ("--dataset-name custom-image", "--dataset-name custom_image"),
        ("--backend openai-embeddings", "--backend openai-embeddings"),
        ("--backend vllm_rerank", "--backend vllm-rerank"),
        ("--multi-turn", "--multi-turn"),
        ("--num-runs 3", "--num-runs"),
        ("--random-batch-size 2", "--random-batch-size"),
        ("--compare a b", "--compare"),
        ("--config f.yaml", "--config"),
        ("--self-timed", "--self-timed"),
        ("--steady-state-threshold 0.5", "--steady-state-threshold"),
        ("--tokenizer-mode mistral", "--tokenizer-mode mistral"),
        ("--speed-bench-config throughput_1k", "--speed-bench-dataset-subset"),
    ],
)
def test_what_is_known_but_not_built_answers_not_yet(line: str, what: str) -> None:
    with pytest.raises(NotYet) as caught:
        parse(line)
    assert caught.value.message == f"{what}: not yet"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "line",
    ["--num-runs 1", "--random-batch-size 1", "--no-steady-state", "--no-self-timed", "--probe-request-rate 0"],
)
def test_what_is_not_built_is_accepted_where_it_asks_for_nothing(line: str) -> None:
    assert config_of(line) is not None


def test_the_dataset_may_be_spelled_as_either_client_spells_it() -> None:
    assert parse("--lora-assignment round_robin").values.lora_assignment == "round-robin"
    for spelling in ("speed_bench", "speed-bench"):
        with pytest.raises(NotYet, match="--dataset-name speed_bench"):
            parse(f"--dataset-name {spelling}")


def test_what_has_no_effect_is_noted() -> None:
    assert notes_of("--save-detailed") == ["--save-detailed has no effect without --save-result or --append-result"]
    assert notes_of("--ramp-up-end-rps 3") == ["--ramp-up-end-rps has no effect without --ramp-up-strategy"]
    assert notes_of("--save-detailed --append-result") == []


JSON = st.recursive(
    st.integers() | st.text() | st.booleans(), lambda inner: st.dictionaries(st.text(), inner, max_size=4), max_leaves=8
)
OBJECT = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


@given(OBJECT, OBJECT)
def test_what_is_laid_over_an_object_wins_and_nothing_else_changes(base: dict, top: dict) -> None:
    before = repr(base)
    merged = overlay(base, top)
    assert repr(base) == before
    assert merged.keys() == base.keys() | top.keys()
    for key in merged:
        if key not in top:
            assert merged[key] == base[key]
        elif not isinstance(top[key], dict):
            assert merged[key] == top[key]
    assert overlay(merged, top) == merged


@pytest.mark.parametrize("text", ["", "k", "1.5K", "1..5k", "-", "1x", "Kk"])
def test_what_is_no_scaled_number_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(ValueError):
        read_scaled_int(text)
