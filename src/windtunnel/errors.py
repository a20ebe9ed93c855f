"""Every exception of windtunnel: a code, the facts as fields, what happened with its values, and the way out.

A failure of a request is a value before it is an exception: it is written into the journal as `(code, facts)` and
made again from them by `from_facts`, so what a report says is what the moment of failure knew.

Docs are generated from this module (`docs/reference/errors.md`); a class without a docstring or a way out fails a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INVALID = 3
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """`; did you mean …?`, for the end of a message; nothing where no known word is near, whatever the case."""
    import difflib  # as late as it is needed: `--help` is fast

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=most)
    return f"; did you mean {' or '.join(by_lower[name] for name in near)}?" if near else ""


@dataclass(eq=False)
class WindtunnelError(Exception):
    """The root of the tree."""

    code: ClassVar[str] = ""
    family: ClassVar[str] = ""
    exit_code: ClassVar[int] = EXIT_FAILED
    happened: ClassVar[str] = ""
    """What happened, as a template over the fields."""
    way_out: ClassVar[str] = ""
    """What to do, as a template over the fields."""
    cases: ClassVar[Mapping[str, str]] = {}
    """Such templates by `case`, where what to do depends on it; in a case that is none of them, `way_out`."""

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def facts(self) -> dict[str, Any]:
        """The fields by name, as they go into a journal; absent ones are left out."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def message(self) -> str:
        """What happened, with its values: one line, whatever a server put into them."""
        return " ".join(self.happened.format(**self._values()).split())

    @property
    def case(self) -> str:
        """Which of `cases` this is."""
        return ""

    @property
    def advice(self) -> str:
        """The way out of the case at hand, with its values."""
        return self.cases.get(self.case, self.way_out).format(**self._values())

    def _values(self) -> dict[str, Any]:
        return {f.name: "?" if (value := getattr(self, f.name)) is None else value for f in fields(self)}

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (from_facts, (self.code, self.facts))


# --- configuration ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ConfigurationError(WindtunnelError):
    """A flag, file or combination makes no sense. It is found before any request is sent."""

    code = "WT-CONFIG"
    family = "configuration"
    exit_code = EXIT_USAGE
    happened = "{where}: {problem}"
    way_out = "{remedy}"

    where: str
    """The flag, file or line that is wrong."""
    problem: str
    remedy: str


@dataclass(eq=False)
class UnknownFlag(WindtunnelError):
    """A flag is neither vLLM's nor windtunnel's."""

    code = "WT-CONFIG-UNKNOWN-FLAG"
    family = "configuration"
    exit_code = EXIT_USAGE
    happened = "unknown flag {flag}{suggestion}"
    way_out = "`windtunnel {command} --help` lists all flags."

    flag: str
    command: str
    suggestion: str = ""


@dataclass(eq=False)
class NotYet(WindtunnelError):
    """A flag of vLLM's is known, but what it asks for is not built yet. Nothing was sent."""

    code = "WT-CONFIG-NOT-YET"
    family = "configuration"
    exit_code = EXIT_USAGE
    happened = "{what}: not yet"
    way_out = "{instead} Nothing was sent."

    what: str
    instead: str = "Leave it out, or use vLLM's own client for this run."


@dataclass(eq=False)
class DatasetError(WindtunnelError):
    """A dataset's file holds something that can't be used as a request. Names the line."""

    code = "WT-CONFIG-DATASET"
    family = "configuration"
    exit_code = EXIT_USAGE
    happened = "{path}{at}: {problem}"
    way_out = "{remedy}"

    path: str
    problem: str
    remedy: str
    line: int | None = None

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"at": "" if self.line is None else f", line {self.line}"}


@dataclass(eq=False)
class MissingExtra(WindtunnelError):
    """A feature needs a library that the base installation doesn't bring."""

    code = "WT-CONFIG-EXTRA"
    family = "configuration"
    exit_code = EXIT_USAGE
    happened = "{feature} needs the package {package}, which is not installed"
    way_out = "From a checkout of windtunnel: pip install '.[{extra}]'"

    feature: str
    package: str
    extra: str


# --- endpoint not ready -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class EndpointNotReady(WindtunnelError):
    """The target did not answer as it should within the time allowed. Says for how long, and the last reason."""

    code = "WT-NOT-READY"
    family = "endpoint not ready"
    happened = "{url} was not ready after {waited_s:.1f} s: {reason}"
    way_out = "{remedy}"

    url: str
    waited_s: float
    reason: str
    remedy: str = (
        "Is the server up, and the address right? A server that is still loading its model needs a longer "
        "--ready-check-timeout-sec."
    )


# --- http -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RequestFailure(WindtunnelError):
    """How a request can fail. `state` is the word for it in tables and result files."""

    family = "http"
    state: ClassVar[str] = ""


@dataclass(eq=False)
class ConnectFailed(RequestFailure):
    """No connection to the server: refused, reset, unreachable, not found by DNS, or TLS did not agree."""

    code = "WT-HTTP-CONNECT"
    state = "connect"
    happened = "no connection to {target} ({phase}): {reason}"
    way_out = "Check that the server can be reached from this machine."
    cases: ClassVar[Mapping[str, str]] = {
        "refused": "Is the server up, and is this its address and port?",
        "dns": "Check the host's name in --base-url or --host.",
        "tls": "Is this an http server? Then write http:// instead of https://. If its certificate is self-signed, "
        "--insecure skips the check.",
        "reset": "The server, or a proxy before it, drops connections: see its log; under load, lower "
        "--max-concurrency or --request-rate.",
        "unreachable": "Check the address, the network, and the firewalls between this machine and the server.",
        "local": "This machine is at its own limit: raise `ulimit -n`, or lower --max-concurrency.",
        "proxy": "Check --proxy: is it this proxy's address, and does the proxy let connections to the server through?",
    }

    target: str
    phase: str
    """`dns`, `refused`, `reset`, `unreachable`, `tls`, `proxy`, or `local`: this machine is at a limit of its own."""
    reason: str

    @property
    def case(self) -> str:
        """The phase."""
        return self.phase


@dataclass(eq=False)
class HttpStatus(RequestFailure):
    """The server answered with a status other than 200. Keeps the body's first KB and Retry-After."""

    code = "WT-HTTP-STATUS"
    state = "http_status"
    happened = "HTTP {status} {reason}: {body}"
    way_out = "Only 200 brings an answer: do --base-url and --endpoint name the API itself?"
    cases: ClassVar[Mapping[str, str]] = {
        "400, 422": "The body says what the server does not accept: often a prompt that is too long for the model "
        "(--input-len, --output-len, --max-model-len), or a field that it doesn't know (--extra-body, --backend).",
        "401, 403": "The server wants another key: set OPENAI_API_KEY, or give --header Authorization='Bearer …'.",
        "404": "The server knows no such path or no such model: check --base-url, --endpoint and --model.",
        "429": "The server limits requests: lower --max-concurrency or --request-rate, or add --retries.",
        "503": "The server is overloaded or still loading: lower --max-concurrency or --request-rate, add --retries, "
        "or wait for it with --ready-check-timeout-sec.",
        "other 4xx": "The request is not what the server accepts: the body may say why.",
        "other 5xx": "The server, or a gateway before it, failed: see its log.",
    }

    status: int
    reason: str
    body: str
    retry_after_s: float | None = None

    @property
    def case(self) -> str:
        """The status, or its class."""
        return next((case for case in self.cases if str(self.status) in case), f"other {self.status // 100}xx")


@dataclass(eq=False)
class TimedOut(RequestFailure):
    """Nothing came in the time allowed for a phase: connect, first_token, stall or total."""

    code = "WT-HTTP-TIMEOUT"
    state = "timeout"
    happened = "{phase} timeout: {waited_s:.3g} s without {missing}, after {tokens} tokens"
    way_out = (
        "If the server may be this slow, raise {flag}. Otherwise it hangs: see its log, and whether it answers others."
    )

    phase: str
    waited_s: float
    missing: str
    tokens: int
    flag: str


@dataclass(eq=False)
class Disconnected(RequestFailure):
    """The connection broke while an answer was due: before its first byte, or with an error in mid-stream."""

    code = "WT-HTTP-DISCONNECT"
    state = "disconnect"
    happened = "the connection broke {where}: {reason}"
    way_out = "Look for restarts, crashes and idle timeouts of the server and of proxies between."

    where: str
    """`before the first byte`, or `after N tokens`."""
    reason: str


@dataclass(eq=False)
class Truncated(RequestFailure):
    """The stream ended without a finish reason: what came is a part of the answer, though the end looked clean."""

    code = "WT-HTTP-TRUNCATED"
    state = "truncated"
    happened = "the stream ended without a finish reason after {tokens} tokens ({end})"
    way_out = (
        "See the logs of the server and of proxies between: one of them died or timed out in mid-answer. "
        "(Other clients count this as success.)"
    )

    tokens: int
    end: str
    """How the bytes ended: `[DONE]`, `end of message`, or `connection closed`."""


@dataclass(eq=False)
class Cancelled(RequestFailure):
    """We stopped the request ourselves: the run was interrupted."""

    code = "WT-HTTP-CANCELLED"
    state = "cancelled"
    happened = "cancelled by {why} after {tokens} tokens"
    way_out = "None needed: the run was stopped, and this request with it."

    why: str
    tokens: int


@dataclass(eq=False)
class RedirectRefused(RequestFailure):
    """The server redirects in a way that can't be followed: too often, or to something that is no http address."""

    code = "WT-HTTP-REDIRECT"
    state = "http_status"
    happened = "HTTP {status} to {location!r}: {problem}"
    way_out = "Give the final address as --base-url."

    status: int
    location: str
    problem: str


# --- malformed response -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class MalformedResponse(RequestFailure):
    """HTTP, SSE, JSON or schema of an answer is broken. Says what, where, and the bytes around it."""

    code = "WT-MALFORMED"
    family = "malformed response"
    state = "malformed"
    happened = "malformed {layer} at byte {offset} of the {part}: {problem}; near {excerpt}"
    way_out = (
        "Is --endpoint the right one for this --backend? If so, the server or a proxy between sends what OpenAI's API "
        "does not."
    )

    layer: str
    """`http`, `sse`, `json` or `schema`."""
    part: str
    """`response`, or `stream, event N`, counted from 1."""
    offset: int
    problem: str
    excerpt: str


# --- backend ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class BackendError(RequestFailure):
    """The server answered 200 and then said in the answer itself that it failed."""

    code = "WT-BACKEND"
    family = "backend"
    state = "in_band_error"
    happened = "the server reported after {tokens} tokens: {error}"
    way_out = "See the server's log: the words above are the server's own."

    error: str
    tokens: int


# --- tokenizer --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class TokenizerError(WindtunnelError):
    """The tokenizer can't be loaded or used."""

    code = "WT-TOKENIZER"
    family = "tokenizer"
    exit_code = EXIT_USAGE
    happened = "tokenizer {tokenizer}: {problem}"
    way_out = "{remedy}"

    tokenizer: str
    problem: str
    remedy: str


@dataclass(eq=False)
class TokenCountMismatch(WindtunnelError):
    """The server counts a prompt's tokens otherwise than the tokenizer that made it."""

    code = "WT-TOKENIZER-MISMATCH"
    family = "tokenizer"
    happened = (
        "the server counts other lengths than {tokenizer} for {mismatched} of {checked} prompts: "
        "{expected} were asked, the server counts {counted}"
    )
    way_out = "Give the server's tokenizer with --tokenizer, or send token ids with --prompt-token-ids."

    tokenizer: str
    checked: int
    mismatched: int
    expected: int
    counted: int


@dataclass(eq=False)
class TokenizeUnavailable(WindtunnelError):
    """The server has no usable /tokenize or /detokenize: any 4xx, since a gateway may say 400 for 404."""

    code = "WT-TOKENIZE-UNAVAILABLE"
    family = "tokenize unavailable"
    exit_code = EXIT_USAGE
    happened = "{url} is not available: {reason}"
    way_out = "Prompt lengths are not verified against the server; the usage that it reports is compared after the run."

    url: str
    reason: str


# --- io ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class FileError(WindtunnelError):
    """A result, journal or dataset can't be read or written: what, where, why, and where the data is safe."""

    code = "WT-IO"
    family = "io"
    happened = "can't {operation} {path}: {reason}"
    way_out = "{remedy}"

    operation: str
    path: str
    reason: str
    remedy: str


@dataclass(eq=False)
class RunNotFound(WindtunnelError):
    """No run of that name is in the runs folder."""

    code = "WT-IO-NO-RUN"
    family = "io"
    exit_code = EXIT_USAGE
    happened = "no run {run} in {folder}{suggestion}"
    way_out = "`windtunnel runs list` shows what is there."

    run: str
    folder: str
    suggestion: str = ""


@dataclass(eq=False)
class RunGoesOn(WindtunnelError):
    """A run that is going on can't be removed or recovered."""

    code = "WT-IO-RUN-GOES-ON"
    family = "io"
    exit_code = EXIT_USAGE
    happened = "run {run} is still going on"
    way_out = "Wait until it ends, or end it with Ctrl-C or SIGTERM: it then reports what it has."

    run: str


@dataclass(eq=False)
class JournalError(WindtunnelError):
    """A journal can't be understood: not ours, newer than we are, or without a header."""

    code = "WT-IO-JOURNAL"
    family = "io"
    happened = "{path}, line {line}: {problem}"
    way_out = "{remedy}"

    path: str
    line: int
    problem: str
    remedy: str


# --- eplb: input --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class EplbInputError(WindtunnelError):
    """A load, topology, placement or setting of eplb makes no sense. Names the field; nothing was changed."""

    code = "WT-EPLB-INPUT"
    family = "eplb input"
    exit_code = EXIT_USAGE
    happened = "{field}: {problem}"
    way_out = "{remedy}"

    field: str
    problem: str
    remedy: str


@dataclass(eq=False)
class TooFewSlots(WindtunnelError):
    """The ranks that are alive have fewer slots than the model has experts, or than the constraints ask for."""

    code = "WT-EPLB-TOO-FEW-SLOTS"
    family = "eplb input"
    exit_code = EXIT_USAGE
    happened = "{needed} slots are needed in each layer ({reason}), {available} are there on {live_ranks} live ranks"
    way_out = "Give the ranks more slots, let more ranks join, or ask for fewer replicas."

    needed: int
    available: int
    live_ranks: int
    reason: str


# --- eplb: transfers ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class TransferError(WindtunnelError):
    """The root of what can go wrong with one copy of an expert's weights."""

    family = "transfer failed"

    peer: int
    """The rank that was read from; -1: the weight source."""
    layer: int
    expert: int
    num_bytes: int
    """Of the whole copy."""
    reason: str
    """The library's own words, or ours."""


@dataclass(eq=False)
class TransferFailed(TransferError):
    """The fabric, the library or the weight source reports an error for a copy, or what came is not what was sent."""

    code = "WT-EPLB-TRANSFER-FAILED"
    happened = "reading layer {layer}, expert {expert} ({num_bytes} bytes) from rank {peer} failed: {reason}"
    way_out = "Other replicas are tried, then the weight source. If it comes again: the reason names the cause."


@dataclass(eq=False)
class PeerLost(TransferError):
    """The process that was read from, or the link to it, is gone."""

    code = "WT-EPLB-PEER-LOST"
    family = "peer lost"
    happened = (
        "rank {peer} was lost while layer {layer}, expert {expert} ({num_bytes} bytes) was read from it: {reason}"
    )
    way_out = "The rank is evicted and its experts live on in their replicas. See its log; start it again to rejoin."


@dataclass(eq=False)
class TransferTimeout(TransferError):
    """A copy made no progress within its deadline: the peer may hang."""

    code = "WT-EPLB-TRANSFER-TIMEOUT"
    family = "transfer timeout"
    happened = (
        "layer {layer}, expert {expert} ({num_bytes} bytes) did not arrive from rank {peer} within {waited_s:.3g} s: "
        "{reason}"
    )
    way_out = "Is the peer busy or stopped? If links are only slow, raise copy_deadline_s."

    waited_s: float = 0.0


@dataclass(eq=False)
class RebalanceAborted(WindtunnelError):
    """A transaction was rolled back. The old epoch serves on, as if nothing had been tried."""

    code = "WT-EPLB-ABORTED"
    family = "rebalance aborted"
    happened = "the rebalance to epoch {epoch} was rolled back in phase {phase}: {reason}; epoch {serving} serves on"
    way_out = "None needed for serving. The reason tells whether to try again (a slow peer) or to see a rank's log."

    epoch: int
    serving: int
    phase: str
    reason: str


@dataclass(eq=False)
class ExpertLost(WindtunnelError):
    """No live rank holds an expert. It is raised before a token is routed to it."""

    code = "WT-EPLB-EXPERT-LOST"
    family = "expert lost"
    happened = "no live rank holds layer {layer}, expert {expert} ({num_missing} such experts in all)"
    way_out = (
        "Give each RankAgent a weight source to restore from, let ranks rejoin, or plan with min_replicas=2, so that "
        "no single death loses an expert."
    )

    layer: int
    expert: int
    num_missing: int


@dataclass(eq=False)
class StaleEpoch(WindtunnelError):
    """An epoch that no longer serves, or does not yet, was used."""

    code = "WT-EPLB-STALE-EPOCH"
    family = "rebalance aborted"
    happened = "rank {rank} was asked for {asked}, and serves {serving}"
    way_out = "Take the routing anew for each step. A rank that was evicted serves nothing until it has rejoined."

    rank: int
    asked: str
    serving: str


@dataclass(eq=False)
class RankRefused(WindtunnelError):
    """The coordinator refused a rank: a wrong token, another model, or a generation that was evicted."""

    code = "WT-EPLB-REFUSED"
    family = "peer lost"
    happened = "the coordinator refused rank {rank}, generation {generation}: {reason}"
    way_out = "{remedy}"

    rank: int
    generation: int
    reason: str
    remedy: str


@dataclass(eq=False)
class CoordinatorUnreachable(WindtunnelError):
    """No coordinator answered a rank. A rank that serves goes on with its epoch and keeps trying."""

    code = "WT-EPLB-NO-COORDINATOR"
    family = "peer lost"
    happened = "no coordinator at {address} after {waited_s:.1f} s: {reason}"
    way_out = "Is the Rebalancer's process up, and is this its address and its token?"

    address: str
    waited_s: float
    reason: str


@dataclass(eq=False)
class RanksMissing(WindtunnelError):
    """Something needs all ranks, and some have not joined the coordinator yet."""

    code = "WT-EPLB-RANKS-MISSING"
    family = "peer lost"
    happened = "{what}: ranks {missing} have not joined {address}, ranks {here} have"
    way_out = "Start their agents with this address and token; `wait_ready` waits for them."

    what: str
    address: str
    here: str
    missing: str


# --- our own processes ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class WorkerLost(WindtunnelError):
    """A worker process of the load generator ended before its work was done."""

    code = "WT-WORKER-LOST"
    family = "io"
    happened = "load worker {worker} ended early ({how}); {lost} of its requests have no result"
    way_out = (
        "What finished is in the journal: {journal}. Out of memory? Fewer --workers, or a lower --max-concurrency."
    )

    worker: int
    how: str
    lost: int
    journal: str


@dataclass(eq=False)
class TargetLost(WindtunnelError):
    """The embedded target did not start, or ended."""

    code = "WT-TARGET-LOST"
    family = "endpoint not ready"
    happened = "the embedded target {what}: {reason}"
    way_out = (
        "Its own words stand above. What can be written after --embedded: `windtunnel bench serve --embedded help`, or "
        "docs/reference/embedded.md."
    )

    what: str
    reason: str


@dataclass(eq=False)
class UnsupportedPlatform(WindtunnelError):
    """windtunnel's load generator needs Linux (epoll, kernel receive stamps)."""

    code = "WT-PLATFORM"
    family = "configuration"
    exit_code = EXIT_USAGE
    happened = "windtunnel runs on Linux; this is {platform}"
    way_out = "Run it in a Linux machine or container near the server."

    platform: str


# --- catalog ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CatalogSourceError(WindtunnelError):
    """A source of code cannot be read: a folder, repository, archive or package. Nothing was changed in the store."""

    code = "WT-CATALOG-SOURCE"
    family = "catalog"
    exit_code = EXIT_USAGE
    happened = "{source}: {problem}"
    way_out = "{remedy}"

    source: str
    problem: str
    remedy: str


@dataclass(eq=False)
class StoreMissing(WindtunnelError):
    """There is no catalog where one is looked for."""

    code = "WT-CATALOG-NO-STORE"
    family = "catalog"
    exit_code = EXIT_USAGE
    happened = "no catalog at {path}"
    way_out = "`windtunnel catalog index SOURCE` makes one; --store FILE names another."

    path: str


@dataclass(eq=False)
class StoreUnusable(WindtunnelError):
    """The catalog's file is corrupt, newer than this windtunnel, locked by another writer, or can't be written."""

    code = "WT-CATALOG-STORE"
    family = "catalog"
    exit_code = EXIT_USAGE
    happened = "{path}: {problem}"
    way_out = "{remedy}"

    path: str
    problem: str
    remedy: str


@dataclass(eq=False)
class NotInCatalog(WindtunnelError):
    """A project, a version of it, or a record is asked for by a name or id that the catalog does not have."""

    code = "WT-CATALOG-UNKNOWN"
    family = "catalog"
    exit_code = EXIT_USAGE
    happened = "the catalog at {path} has no {what} {name}{suggestion}"
    way_out = "`windtunnel catalog list` shows its projects, `windtunnel catalog search WORDS` its records."

    path: str
    what: str
    """`project`, `version`, `record`."""
    name: str
    suggestion: str = ""


@dataclass(eq=False)
class ExplainerError(WindtunnelError):
    """The endpoint that was asked for explanations did not give one that can be read. The record keeps its own text."""

    code = "WT-CATALOG-EXPLAINER"
    family = "catalog"
    happened = "{url}: {problem}"
    way_out = "{remedy}"

    url: str
    problem: str
    remedy: str


# --- engine -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class EngineConfigError(WindtunnelError):
    """The reference engine cannot be made as it is asked for. Names the field."""

    code = "WT-ENGINE-CONFIG"
    family = "engine"
    exit_code = EXIT_USAGE
    happened = "{field}: {problem}"
    way_out = "{remedy}"

    field: str
    problem: str
    remedy: str


@dataclass(eq=False)
class EngineRequestError(WindtunnelError):
    """A request to the reference engine makes no sense. It answers with status 400 and OpenAI's error object."""

    code = "WT-ENGINE-REQUEST"
    family = "engine"
    happened = "{field}: {problem}"
    way_out = "{remedy}"

    field: str
    problem: str
    remedy: str


@dataclass(eq=False)
class EngineFull(WindtunnelError):
    """Too many requests wait already. The reference engine answers with status 503 and Retry-After."""

    code = "WT-ENGINE-FULL"
    family = "engine"
    happened = "{waiting} requests wait already"
    way_out = "Send fewer at once, or begin the engine with a greater --max-waiting."

    waiting: int


@dataclass(eq=False)
class ExpertsUnavailable(WindtunnelError):
    """Experts of the reference engine are served by no rank, and did not come back in time. The requests fail."""

    code = "WT-ENGINE-EXPERTS"
    family = "engine"
    happened = "layer {layer}: no rank served experts {experts} for {waited_s:.1f} s"
    way_out = "Too few ranks are left for all experts: restart one (--restart does it), or begin with more --ranks."

    layer: int
    experts: str
    waited_s: float


@dataclass(eq=False)
class EngineDraining(WindtunnelError):
    """The reference engine was told to end: it ends the requests that it has, and takes no new ones."""

    code = "WT-ENGINE-DRAINING"
    family = "engine"
    happened = "the engine is ending: {under_way} requests are under way, and it takes no new ones"
    way_out = "Ask another one, or this one when it was started again."

    under_way: int


@dataclass(eq=False)
class EngineBroken(WindtunnelError):
    """The reference engine has failed in itself. All requests fail, and its process ends."""

    code = "WT-ENGINE-BROKEN"
    family = "engine"
    happened = "the engine has failed: {reason}"
    way_out = "This is a fault of windtunnel's own; its log has the traceback. Start the engine again."

    reason: str


# --- drill ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ScenarioError(WindtunnelError):
    """A drill's scenario makes no sense: a key, a value, an action or an expectation. Found before anything is done."""

    code = "WT-DRILL-SCENARIO"
    family = "drill"
    exit_code = EXIT_USAGE
    happened = "{path}{at}: {problem}"
    way_out = "{remedy}"

    path: str
    """The file, or the name of a shipped scenario."""
    problem: str
    remedy: str
    line: int | None = None

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"at": "" if self.line is None else f", line {self.line}"}


@dataclass(eq=False)
class ActionFailed(WindtunnelError):
    """An action of a drill could not be done. The drill goes on without it, and does not pass."""

    code = "WT-DRILL-ACTION"
    family = "drill"
    happened = "{action}: {reason}"
    way_out = "See the log of what refused it; `windtunnel drill --check` finds what is wrong with the scenario itself."

    action: str
    reason: str


def classes() -> list[type[WindtunnelError]]:
    """Every class that has a code, in the order of this file."""
    return [c for c in globals().values() if isinstance(c, type) and issubclass(c, WindtunnelError) and c.code]


@cache
def _by_code() -> dict[str, type[WindtunnelError]]:
    return {cls.code: cls for cls in classes()}


def from_facts(code: str, facts: dict[str, Any]) -> WindtunnelError:
    """The error that was written as `(code, facts)`; facts of a newer version that we don't know are left out."""
    cls = _by_code()[code]
    known = {f.name for f in fields(cls)}
    return cls(**{name: value for name, value in facts.items() if name in known})
