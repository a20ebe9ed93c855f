"""From flags to the configuration of a run: vLLM's defaults and rules, and every check between flags."""

import pytest
from command_lines import config_of

from windtunnel.errors import ConfigurationError
from windtunnel.measure.run import RampUp


def problem_of(line: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        config_of(line)
    assert len(caught.value.remedy) > 5
    return caught.value


def test_without_flags_the_configuration_is_that_of_vllm() -> None:
    config = config_of("")
    assert config.target.base_url == "http://127.0.0.1:8000"
    assert (config.target.backend, config.target.dialect, config.target.endpoint) == (
        "openai",
        "completions",
        "/v1/completions",
    )
    assert (config.model, config.stream, config.logprobs, config.extra_body) == (None, True, None, {})
    assert (config.dataset.name, config.dataset.num_prompts, config.dataset.seed) == ("random", 1000, 0)
    assert (config.dataset.input_len, config.dataset.output_len, config.dataset.prefix_len) == (1024, 128, 0)
    assert (config.load.request_rate, config.load.burstiness, config.load.max_concurrency) == (None, 1.0, None)
    assert (config.output.percentile_metrics, config.output.metric_percentiles) == (["ttft", "tpot", "itl"], [99.0])
    assert (config.target.first_token_timeout_s, config.target.request_timeout_s) == (600.0, 21600.0)
    assert config.output.max_failed_ratio == 0.01


def test_random_prompts_ignore_the_end_of_sequence_and_files_do_not() -> None:
    assert config_of("").ignore_eos
    assert config_of("--backend openai-chat").ignore_eos
    assert not config_of("--dataset-name custom --dataset-path f.jsonl").ignore_eos
    assert config_of("--dataset-name custom --dataset-path f.jsonl --ignore-eos").ignore_eos


@pytest.mark.parametrize(
    ("line", "output_len"),
    [
        ("", 128),
        ("--random-output-len 7", 7),
        ("--output-len 9 --random-output-len 7", 9),
        ("--dataset-name custom --dataset-path f", 256),
        ("--dataset-name custom --dataset-path f --custom-output-len 5", 5),
        ("--dataset-name custom --dataset-path f --custom-output-len -1", None),
        ("--dataset-name custom --dataset-path f --output-len -1", None),
        ("--dataset-name custom --dataset-path f --output-len 4 --custom-output-len -1", 4),
        ("--dataset-name sharegpt --dataset-path f", None),
        ("--dataset-name sharegpt --dataset-path f --sharegpt-output-len 6", 6),
        ("--dataset-name sharegpt --dataset-path f --output-len 3", 3),
    ],
)
def test_the_answer_length_is_the_general_one_or_the_dataset_s(line: str, output_len: int | None) -> None:
    assert config_of(line).dataset.output_len == output_len


def test_the_general_prompt_length_wins_over_the_random_one() -> None:
    assert config_of("--input-len 5 --random-input-len 9").dataset.input_len == 5
    assert config_of("--random-input-len 9").dataset.input_len == 9


@pytest.mark.parametrize(
    ("text", "ratios"), [("0.3", (0.3, 0.3)), ('\'{"input":0.3,"output":0.5}\'', (0.3, 0.5)), ("0", (0.0, 0.0))]
)
def test_the_range_ratio_is_one_number_or_two(text: str, ratios: tuple[float, float]) -> None:
    dataset = config_of(f"--random-range-ratio {text}").dataset
    assert (dataset.input_range_ratio, dataset.output_range_ratio) == ratios


@pytest.mark.parametrize(
    "text", ["1", "-0.1", "'{\"input\": 0.3}'", '\'{"input": 0.3, "output": true}\'', '\'{"input": 0.3, "output": 1}\'']
)
def test_a_range_ratio_out_of_range_is_refused(text: str) -> None:
    assert problem_of(f"--random-range-ratio {text}").where == "--random-range-ratio"


def test_the_dataset_s_switches_arrive() -> None:
    dataset = config_of("--disable-shuffle --no-oversample --skip-chat-template --prompt-token-ids --seed 5").dataset
    assert (dataset.shuffle, dataset.oversample, dataset.skip_chat_template) == (False, False, True)
    assert (dataset.prompt_token_ids, dataset.seed) == (True, 5)


def test_infinite_rates_mean_no_schedule() -> None:
    for spelling in ("inf", "Infinity", "INF"):
        assert config_of(f"--request-rate {spelling}").load.request_rate is None
    assert config_of("--request-rate 2.5").load.request_rate == 2.5


def test_a_ramp_has_a_strategy_a_start_and_an_end() -> None:
    line = "--ramp-up-strategy exponential --ramp-up-start-rps 1 --ramp-up-end-rps 8"
    assert config_of(line).load.ramp_up == RampUp("exponential", 1.0, 8.0)
    assert config_of(f"{line} --request-rate inf").load.ramp_up == RampUp("exponential", 1.0, 8.0)


def test_sampling_parameters_go_into_the_body_and_extra_body_wins() -> None:
    config = config_of('--temperature 0 --top-k 5 --top-p 0.5 --extra-body \'{"top_k": 9, "x": [1]}\'')
    assert config.extra_body == {"temperature": 0.0, "top_k": 9, "top_p": 0.5, "x": [1]}


def test_goodput_percentiles_and_metadata_are_taken_apart() -> None:
    output = config_of(
        "--goodput ttft:200 e2el:5e3 --percentile-metrics ttft,e2el --metric-percentiles 50,99.9,50 --metadata a=b=c d="
    ).output
    assert output.goodput_ms == {"ttft": 200.0, "e2el": 5000.0}
    assert output.percentile_metrics == ["ttft", "e2el"]
    assert output.metric_percentiles == [50.0, 99.9]
    assert output.metadata == {"a": "b=c", "d": ""}


def test_durations_are_read_in_any_unit() -> None:
    target = config_of("--connect-timeout-s 250ms --request-timeout-s 2h --ready-check-timeout-sec 5").target
    assert (target.connect_timeout_s, target.request_timeout_s, target.ready_check_timeout_s) == (0.25, 7200.0, 5.0)


def test_what_is_asked_of_requests_arrives() -> None:
    config = config_of("--no-stream --logprobs 2 --lora-modules a b --lora-assignment round-robin --profile --dry-run")
    assert (config.stream, config.logprobs, config.profile, config.dry_run) == (False, 2, True, True)
    assert (config.lora_modules, config.lora_assignment) == (["a", "b"], "round-robin")


def test_request_ids_begin_with_a_prefix_of_their_own_for_each_run() -> None:
    one, other = config_of("").request_id_prefix, config_of("").request_id_prefix
    assert one != other
    assert one.startswith("bench-") and one.endswith("-") and len(one) == len("bench-12345678-")
    assert config_of("--request-id-prefix x").request_id_prefix == "x"


def test_an_empty_file_name_or_folder_is_none() -> None:
    output = config_of("--save-result --result-filename '' --result-dir '' --label ''").output
    assert (output.result_filename, output.result_dir, output.label) == (None, None, None)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("--dataset-path f", "--dataset-path"),
        ("--dataset-name custom", "--dataset-name"),
        ("--dataset-name sharegpt", "--dataset-name"),
        ("--skip-tokenizer-init", "--skip-tokenizer-init"),
        ("--prompt-token-ids --backend openai-chat", "--prompt-token-ids"),
        ("--output-len -1", "--output-len"),
        ("--model ''", "--model"),
        ("--tokenizer ' '", "--tokenizer"),
        ("--ramp-up-strategy linear --request-rate 5", "--request-rate"),
        ("--ramp-up-strategy linear --ramp-up-start-rps 5", "--ramp-up-strategy"),
        ("--ramp-up-strategy linear --ramp-up-start-rps 5 --ramp-up-end-rps 4", "--ramp-up-start-rps"),
        ("--ramp-up-strategy linear --ramp-up-start-rps 0 --ramp-up-end-rps 4", "--ramp-up-start-rps"),
        ("--ramp-up-strategy exponential --ramp-up-start-rps 0 --ramp-up-end-rps 4", "--ramp-up-start-rps"),
        ("--goodput ttft", "--goodput"),
        ("--goodput ttft:x", "--goodput"),
        ("--goodput ttft:-1", "--goodput"),
        ("--goodput ttft:inf", "--goodput"),
        ("--goodput ttft:nan", "--goodput"),
        ("--goodput itl:3", "--goodput"),
        ("--percentile-metrics ttft,,itl", "--percentile-metrics"),
        ("--metric-percentiles 101", "--metric-percentiles"),
        ("--metric-percentiles nan", "--metric-percentiles"),
        ("--metric-percentiles 50,", "--metric-percentiles"),
        ("--metadata a", "--metadata"),
        ("--metadata =a", "--metadata"),
        ("--metadata model_id=x", "--metadata"),
        ("--metadata p99.9_ttft_ms=1", "--metadata"),
        ("--metadata mean_itl_ms=1", "--metadata"),
        ("--metadata windtunnel=1", "--metadata"),
        ("--extra-body.stream false", "--extra-body"),
        ("--request-id-prefix 'a\nb'", "--request-id-prefix"),
        ("--request-id-prefix ä", "--request-id-prefix"),
        ("--embedded --host localhost", "--host"),
        ("--embedded --port 8000", "--port"),
        ("--embedded --base-url http://h", "--base-url"),
    ],
)
def test_a_combination_that_makes_no_sense_is_refused_and_its_flag_named(line: str, where: str) -> None:
    assert problem_of(line).where == where


def test_an_unknown_metric_gets_the_name_that_was_probably_meant() -> None:
    assert "did you mean e2el?" in problem_of("--percentile-metrics ttft,e2e").message
    assert "did you mean ttft?" in problem_of("--goodput tttf:3").message


def test_an_embedded_target_is_the_engine_unless_it_is_named() -> None:
    target = config_of("--embedded --num-prompts 3").target
    assert (target.embedded, target.base_url, target.endpoint) == ("engine", None, "/v1/completions")
    assert config_of("--embedded paced:ttft=50ms").target.embedded == "paced:ttft=50ms"
