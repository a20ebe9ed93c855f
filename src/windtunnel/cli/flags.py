"""Every flag of `windtunnel bench serve`, once: vLLM's two clients' and ours. Parser, help, docs and checks read it.

Defaults and meanings are vLLM's. A flag with `built=False` is accepted in all its spellings and answers "not yet"
when it is given a value other than its default.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from windtunnel.cli.values import (
    ANSWER_TOKENS,
    BURSTINESS,
    COUNT,
    FLOAT,
    FLOAT_OR_INF,
    INT,
    JSON,
    KEY_VALUE,
    LIST,
    NAME,
    PATH,
    PORT,
    POSITIVE,
    RAMP_RATE,
    RATE,
    RATIO,
    SEED,
    SHARE,
    SWITCH,
    TEXT,
    TIMEOUT,
    TOKENS,
    TOKENS_OR_NONE,
    URL,
    WAIT,
    Kind,
)

BOTH = "vLLM"
PYTHON = "vLLM's Python client"
RUST = "vLLM's Rust client"
OURS = "windtunnel"

GROUPS = {
    "target": "where requests go",
    "what is sent": "datasets and their lengths",
    "tokenizer": "who counts tokens",
    "load": "when requests are sent, and how many are in flight",
    "sampling": "what is asked of the server beside the prompt",
    "timeouts": "seconds, or 250ms, 10s, 2min",
    "output": "what is printed and saved",
    "windtunnel's own": "beside vLLM's flags",
}
_TARGET, _SENT, _TOKENIZER, _LOAD, _SAMPLING, _TIMEOUTS, _OUTPUT, _OWN = GROUPS


class Flag(NamedTuple):
    """One flag."""

    name: str
    group: str
    kind: Kind
    default: Any
    help: str
    origin: str = BOTH
    """Whose flag it is."""
    nargs: str | int | None = None
    metavar: str | None = None
    """Instead of the kind's."""
    choices: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    """Further choices that are known, but not built."""
    built: bool = True
    aliases: tuple[str, ...] = ()
    bare: str | None = None
    """With nargs `?`: the value that the flag has when it is given none."""

    @property
    def key(self) -> str:
        """Its name in the parsed arguments."""
        return self.name[2:].replace("-", "_")


def _later(
    name: str, group: str, kind: Kind, default: Any, text: str, origin: str = BOTH, nargs: int | None = None
) -> Flag:
    return Flag(name, group, kind, default, text, origin, nargs, built=False)


BACKENDS = ("openai", "vllm", "openai-chat")
BACKENDS_LATER = (
    "openai-responses",
    "openai-audio",
    "openai-embeddings",
    "openai-embeddings-chat",
    "openai-embeddings-clip",
    "openai-embeddings-vlm2vec",
    "infinity-embeddings",
    "infinity-embeddings-clip",
    "vllm-pooling",
    "vllm-rerank",
)
DATASETS = ("random", "custom", "sharegpt")
DATASETS_LATER = (
    "burstgpt",
    "random-mm",
    "random-rerank",
    "hf",
    "custom_audio",
    "custom_image",
    "prefix_repetition",
    "spec_bench",
    "speed_bench",
    "timed_trace",
)
TOKENIZER_MODES_LATER = ("mistral", "deepseek_v32")
SPEED_BENCH = ("qualitative", *(f"throughput_{n}k" for n in (1, 2, 8, 16, 32)))

_BUILT = (
    # target
    Flag("--base-url", _TARGET, URL, None, "The server's address, without the endpoint. Instead of --host and --port."),
    Flag("--host", _TARGET, TEXT, "127.0.0.1", "Name or address of the server; IPv6 with or without brackets."),
    Flag("--port", _TARGET, PORT, 8000, "TCP port of the server."),
    Flag("--endpoint", _TARGET, PATH, None, "Path of the API's endpoint. Without it: the backend's own."),
    Flag(
        "--backend", _TARGET, NAME, "openai", "The API that is spoken: completions, or chat (openai-chat).",
        choices=BACKENDS, later=BACKENDS_LATER,
    ),
    Flag("--model", _TARGET, NAME, None, "Name of the model. Without it: the first that /v1/models lists."),
    Flag("--served-model-name", _TARGET, NAME, None, "What requests call the model, where that is not --model."),
    Flag(
        "--header", _TARGET, KEY_VALUE, None,
        "Headers that go with each request; they win over our own, Authorization over OPENAI_API_KEY. Never saved.",
        nargs="*",
    ),
    Flag("--insecure", _TARGET, SWITCH, False, "Don't check the server's TLS certificate."),
    Flag(
        "--lora-modules", _TARGET, NAME, None, "LoRA adapters of the server: each request names one as its model.",
        nargs="+",
    ),
    Flag(
        "--lora-assignment", _TARGET, NAME, "random", "How adapters are assigned to requests.",
        choices=("random", "round-robin"),
    ),
    # what is sent
    Flag(
        "--dataset-name", _SENT, NAME, "random", "random: made-up prompts of exact length; custom: a JSONL file with a "
        "prompt in each line; sharegpt: a file of conversations.",
        choices=DATASETS, later=DATASETS_LATER,
    ),
    Flag("--dataset-path", _SENT, PATH, None, "The dataset's file."),
    Flag("--num-prompts", _SENT, POSITIVE, 1000, "Number of requests."),
    Flag("--seed", _SENT, SEED, 0, "Seeds everything random: prompts, lengths, order, arrivals."),
    Flag("--input-len", _SENT, TOKENS, None, "Prompt length; means --random-input-len."),
    Flag("--output-len", _SENT, ANSWER_TOKENS, None, "Answer length, for any dataset."),
    Flag("--random-input-len", _SENT, TOKENS, 1024, "Prompt length, as the server counts it."),
    Flag("--random-output-len", _SENT, TOKENS, 128, "Requested answer length."),
    Flag("--random-prefix-len", _SENT, TOKENS_OR_NONE, 0, "Length of a prefix that all prompts share."),
    Flag(
        "--random-range-ratio", _SENT, RATIO, 0.0, "Lengths vary evenly from length × (1 − R) to length × (1 + R); "
        'R is below 1. Or \'{"input": 0.3, "output": 0.5}\'.',
    ),
    Flag("--prompt-token-ids", _SENT, SWITCH, False, "Send token ids instead of text (completions only).", RUST),
    Flag(
        "--max-model-len", _SENT, TOKENS, None, "Leave out requests whose prompt and answer together are longer.", RUST
    ),
    Flag("--custom-output-len", _SENT, ANSWER_TOKENS, 256, "Answer length; -1 takes each line's own output_tokens."),
    Flag("--skip-chat-template", _SENT, SWITCH, False, "Send custom prompts as they are, without a chat template."),
    Flag(
        "--chat-template-kwargs", _SENT, JSON, None,
        "Arguments of the chat template, where we apply it. Also dotted: --chat-template-kwargs.thinking true.", PYTHON,
    ),
    Flag("--sharegpt-output-len", _SENT, TOKENS, None, "Answer length. Without it: as long as the recorded answer."),
    Flag("--no-oversample", _SENT, SWITCH, False, "Don't repeat a dataset that has fewer prompts than --num-prompts."),
    Flag("--disable-shuffle", _SENT, SWITCH, False, "Keep the dataset's order."),
    Flag("--dry-run", _SENT, SWITCH, False, "Make the prompts, print lengths and schedule, send nothing.", RUST),
    # tokenizer
    Flag(
        "--tokenizer", _TOKENIZER, NAME, None, "A folder, a tokenizer.json or .tiktoken file, an encoding's or a "
        "hub's name, or `server` for the server's /tokenize. Without it: the model's.",
    ),
    Flag(
        "--tokenizer-mode", _TOKENIZER, NAME, "auto", "Which implementation reads it.",
        choices=("auto", "hf", "slow"), later=TOKENIZER_MODES_LATER,
    ),
    Flag("--trust-remote-code", _TOKENIZER, SWITCH, False, "Accepted; code of a hub's repository is never run."),
    Flag("--skip-tokenizer-init", _TOKENIZER, SWITCH, False, "Use no tokenizer: lengths are the server's word."),
    # load
    Flag(
        "--request-rate", _LOAD, RATE, float("inf"), "Requests per second, at random instants. inf: all at once, or as "
        "--max-concurrency lets.",
    ),
    Flag(
        "--burstiness", _LOAD, BURSTINESS, 1.0, "Shape of the gamma distribution of the gaps between requests: "
        "1 is a Poisson process, less is burstier, more is more even, inf makes them all alike.",
    ),
    Flag("--max-concurrency", _LOAD, POSITIVE, None, "Maximum number of requests in flight."),
    Flag(
        "--ramp-up-strategy", _LOAD, NAME, None, "Let the request rate grow over the run, instead of --request-rate.",
        choices=("linear", "exponential"),
    ),
    Flag("--ramp-up-start-rps", _LOAD, RAMP_RATE, None, "Rate at the start of the ramp."),
    Flag("--ramp-up-end-rps", _LOAD, RAMP_RATE, None, "Rate at its end."),
    Flag("--num-warmups", _LOAD, COUNT, 0, "Requests before the measured ones; they don't count."),
    Flag("--profile", _LOAD, SWITCH, False, "Have the server profile itself during the run."),
    # sampling
    Flag("--temperature", _SAMPLING, FLOAT, None, "Without it: the server's default, which need not be greedy."),
    Flag("--top-p", _SAMPLING, FLOAT, None, "Nucleus sampling."),
    Flag("--top-k", _SAMPLING, INT, None, "Sample from the k likeliest tokens."),
    Flag("--min-p", _SAMPLING, FLOAT, None, "Leave out tokens below this share of the likeliest one's probability."),
    Flag("--frequency-penalty", _SAMPLING, FLOAT, None, "Penalty by how often a token was generated."),
    Flag("--presence-penalty", _SAMPLING, FLOAT, None, "Penalty for a token that was generated."),
    Flag("--repetition-penalty", _SAMPLING, FLOAT, None, "Factor for tokens of prompt and answer."),
    Flag(
        "--ignore-eos", _SAMPLING, SWITCH, False, "Generate the requested number of tokens, also past the "
        "end of the text. Always on with random prompts.",
    ),
    Flag("--logprobs", _SAMPLING, COUNT, None, "Log probabilities for each token."),
    Flag(
        "--extra-body", _SAMPLING, JSON, None, "More fields for the body of each request. Also dotted: "
        "--extra-body.top_k 5; a list's elements: --extra-body.stop+ a,b.",
    ),
    Flag(
        "--no-stream", _SAMPLING, SWITCH, False, "Ask for whole answers instead of streams; TTFT and ITL are left out.",
        PYTHON,
    ),
    Flag("--request-id-prefix", _SAMPLING, TEXT, None, "Prefix of each request's id. Without it: bench-XXXXXXXX-."),
    # timeouts
    Flag("--ready-check-timeout-sec", _TIMEOUTS, WAIT, 0.0, "Longest wait for the server to be ready; 0: none."),
    Flag("--connect-timeout-s", _TIMEOUTS, TIMEOUT, 10.0, "Time to establish a connection, TLS included.", OURS),
    Flag("--first-token-timeout-s", _TIMEOUTS, TIMEOUT, 600.0, "From sending a request to its first token.", OURS),
    Flag("--stall-timeout-s", _TIMEOUTS, TIMEOUT, 120.0, "From one token to the next.", OURS),
    Flag("--request-timeout-s", _TIMEOUTS, TIMEOUT, 21600.0, "From sending a request to its end.", OURS),
    # output
    Flag(
        "--percentile-metrics", _OUTPUT, LIST, None, "Metrics whose percentiles are shown. Without it: ttft,tpot,itl.",
        metavar="METRIC,…",
    ),
    Flag("--metric-percentiles", _OUTPUT, LIST, "99", "Which percentiles.", metavar="P,…"),
    Flag(
        "--goodput", _OUTPUT, TEXT, None, "Service level objectives: a request is good when it keeps them all, e.g. "
        "ttft:200 e2el:5000.",
        nargs="+", metavar="METRIC:MS",
    ),
    Flag("--save-result", _OUTPUT, SWITCH, False, "Write the result as a JSON file, in vLLM's format."),
    Flag("--save-detailed", _OUTPUT, SWITCH, False, "Include per-request measurements in the result file."),
    Flag("--append-result", _OUTPUT, SWITCH, False, "Append the result to the file, as one more line of JSON."),
    Flag("--result-dir", _OUTPUT, PATH, None, "Folder of the result file. Without it: the current one."),
    Flag("--result-filename", _OUTPUT, PATH, None, "Name of the result file. Without it: load, model, date."),
    Flag("--label", _OUTPUT, TEXT, None, "First part of the result file's name. Without it: the backend."),
    Flag("--metadata", _OUTPUT, KEY_VALUE, None, "Keys of your own for the result file.", nargs="*"),
    Flag("--disable-tqdm", _OUTPUT, SWITCH, False, "No progress display."),
    # windtunnel's own
    Flag(
        "--embedded", _OWN, TEXT, None, "Start a target of our own and benchmark it: no server needed. E.g. "
        "'engine:ranks=8' or 'paced:ttft=50ms,itl=10ms'; `--embedded help` tells more. Bare: engine.",
        OURS, nargs="?", bare="engine",
    ),
    Flag("--proxy", _OWN, URL, None, "Send through this HTTP proxy. The environment's proxies are not used.", OURS),
    Flag("--retries", _OWN, COUNT, 0, "Retry a failed request up to N times; attempts and waits are reported.", OURS),
    Flag("--workers", _OWN, POSITIVE, None, "Processes that send. Without it: chosen by the load.", OURS),
    Flag(
        "--runs-dir", _OWN, PATH, None, "Where runs are kept. Without it: $XDG_STATE_HOME/windtunnel/runs, which is "
        "~/.local/state/windtunnel/runs.",
        OURS,
    ),
    Flag("--max-failed-ratio", _OWN, SHARE, 0.01, "More failed requests than this share make a run invalid.", OURS),
)  # fmt: skip

_NOT_YET = (
    _later("--config", _TARGET, PATH, None, "A YAML file of flags.", PYTHON),
    _later("--custom-ensure-client-side-data", _SENT, SWITCH, False, "Fetch a dataset's media ourselves.", PYTHON),
    _later("--enable-multimodal-chat", _SENT, SWITCH, False, "Chat messages with media in them."),
    _later("--no-reranker", _SENT, SWITCH, False, "The model of random-rerank embeds instead of ranking."),
    _later("--random-batch-size", _SENT, INT, 1, "Several inputs in one request (embeddings)."),
    _later("--random-cache-hit-fraction", _SENT, FLOAT, 0.0, "Share of prompts that reuse a cached prefix.", RUST),
    _later("--random-cache-ratio", _SENT, FLOAT, 0.0, "How much of such a prompt the prefix is.", RUST),
    _later("--random-mm-base-items-per-request", _SENT, INT, 1, "Images and videos in a request."),
    _later("--random-mm-num-mm-items-range-ratio", _SENT, FLOAT, 0.0, "How much their number varies."),
    _later("--random-mm-limit-mm-per-prompt", _SENT, JSON, {"image": 255, "video": 1}, "Maximum number of each kind."),
    _later("--random-mm-bucket-config", _SENT, TEXT, None, "Sizes of images and videos, and how likely each is."),
    _later("--hf-name", _SENT, NAME, None, "Name of a hub's dataset, where its path is another.", PYTHON),
    _later("--hf-subset", _SENT, NAME, None, "Subset of a hub's dataset."),
    _later("--hf-split", _SENT, NAME, None, "Split of a hub's dataset."),
    _later("--hf-output-len", _SENT, TOKENS, None, "Answer length for a hub's dataset."),
    _later("--hf-text-column", _SENT, NAME, None, "Column that holds the prompts.", RUST),
    _later("--bfcl-categories", _SENT, LIST, None, "Categories of the function-calling dataset.", PYTHON),
    _later("--blazedit-min-distance", _SENT, FLOAT, 0.0, "Least edit distance (blazedit).", PYTHON),
    _later("--blazedit-max-distance", _SENT, FLOAT, 1.0, "Largest edit distance (blazedit).", PYTHON),
    _later("--asr-min-audio-len-sec", _SENT, FLOAT, 0.0, "Shortest audio clip.", PYTHON),
    _later("--asr-max-audio-len-sec", _SENT, FLOAT_OR_INF, float("inf"), "Longest audio clip.", PYTHON),
    _later("--prefix-repetition-prefix-len", _SENT, TOKENS, 256, "Length of a shared prefix."),
    _later("--prefix-repetition-suffix-len", _SENT, TOKENS, 256, "Length of a prompt's own part."),
    _later("--prefix-repetition-num-prefixes", _SENT, INT, 10, "Number of shared prefixes."),
    _later("--prefix-repetition-output-len", _SENT, TOKENS, 128, "Answer length."),
    _later("--spec-bench-output-len", _SENT, TOKENS, 256, "Answer length (spec_bench).", PYTHON),
    _later("--spec-bench-category", _SENT, NAME, None, "Category of spec_bench.", PYTHON),
    Flag(
        "--speed-bench-dataset-subset", _SENT, NAME, "qualitative", "Part of SPEED-Bench.",
        choices=SPEED_BENCH, built=False, aliases=("--speed-bench-config",),
    ),
    _later("--speed-bench-output-len", _SENT, TOKENS, 4096, "Answer length (SPEED-Bench)."),
    _later("--speed-bench-category", _SENT, NAME, None, "Category of SPEED-Bench."),
    _later("--speed-bench-max-input-len", _SENT, TOKENS, None, "Cut prompts to this length.", RUST),
    _later("--timed-trace-chunk-hash-size", _SENT, TOKENS, 16, "Tokens that one hash of a trace stands for."),
    _later("--timed-trace-sec-multiplier", _SENT, FLOAT, 1.0, "From a trace's timestamps to seconds."),
    _later("--timed-trace-label-timestamp", _SENT, NAME, "timestamp", "The timestamp's key."),
    _later("--timed-trace-label-input-length", _SENT, NAME, "input_length", "The prompt length's key."),
    _later("--timed-trace-label-output-length", _SENT, NAME, "output_length", "The answer length's key."),
    _later("--timed-trace-label-hash-ids", _SENT, NAME, "hash_ids", "The hashes' key."),
    _later("--multi-turn", _SENT, SWITCH, False, "Conversations of several turns.", RUST),
    _later("--multi-turn-num-turns", _SENT, INT, 3, "Turns in a conversation.", RUST),
    _later("--multi-turn-min-turns", _SENT, INT, 0, "Least number of turns.", RUST),
    _later("--multi-turn-max-turns", _SENT, INT, 0, "Largest number of turns.", RUST),
    _later("--multi-turn-concurrency", _SENT, INT, None, "Conversations at a time.", RUST),
    _later("--multi-turn-delay-ms", _SENT, FLOAT, 0.0, "Milliseconds between turns.", RUST),
    _later("--multi-turn-prefix-global-ratio", _SENT, FLOAT, 0.0, "Share of a turn that all have in common.", RUST),
    _later(
        "--multi-turn-prefix-conversation-ratio", _SENT, FLOAT, 0.0,
        "Share of a turn that one conversation's turns have in common.", RUST,
    ),
    _later("--per-turn-input-len", _SENT, TOKENS_OR_NONE, 0, "Prompt length of later turns.", RUST),
    _later("--self-timed", _LOAD, SWITCH, False, "Send at the instants that a trace recorded."),
    Flag("--no-self-timed", _LOAD, SWITCH, False, "Accepted: nothing is self-timed."),
    _later("--probe-request-rate", _LOAD, FLOAT, 0.0, "Small requests beside the load, measured apart.", PYTHON),
    _later("--profile-batch-threshold", _LOAD, INT, None, "Start the profile when this many requests run.", RUST),
    _later("--profile-duration", _LOAD, FLOAT, 5.0, "Length of the profile in seconds.", RUST),
    _later("--num-runs", _LOAD, INT, 1, "Repeat the run.", RUST),
    _later("--sweep-max-concurrency", _LOAD, LIST, None, "Repeat the run at each concurrency.", RUST),
    _later("--sweep-request-rate", _LOAD, LIST, None, "Repeat the run at each request rate.", RUST),
    _later("--sweep-num-prompts-factor", _LOAD, INT, None, "Requests of a sweep's point: its concurrency × N.", RUST),
    _later("--sweep-summary-percentiles", _OUTPUT, LIST, None, "Percentiles in a sweep's summary.", RUST),
    _later("--reset-prefix-cache", _LOAD, SWITCH, False, "Empty the server's prefix cache between points.", RUST),
    _later("--steady-state-threshold", _OUTPUT, FLOAT, 0.95, "Share of the cap at which steady state begins.", RUST),
    _later("--steady-state-min-window", _OUTPUT, FLOAT, None, "Shortest steady state, in seconds.", RUST),
    Flag("--no-steady-state", _OUTPUT, SWITCH, False, "Accepted: no steady state is computed.", RUST),
    _later("--compare", _OUTPUT, PATH, None, "Show two result files side by side.", RUST, nargs=2),
    _later("--use-beam-search", _SAMPLING, SWITCH, False, "Beam search.", PYTHON),
    _later("--plot-timeline", _OUTPUT, SWITCH, False, "A timeline as an HTML file.", PYTHON),
    _later("--timeline-itl-thresholds", _OUTPUT, LIST, "25,50", "Where the timeline's colours change, in ms.", PYTHON),
    _later("--plot-dataset-stats", _OUTPUT, SWITCH, False, "A figure of the dataset's lengths.", PYTHON),
)  # fmt: skip

SERVE_FLAGS: tuple[Flag, ...] = _BUILT + _NOT_YET
