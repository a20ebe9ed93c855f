"""What a drill is to do, as values: the shape of a scenario's file. The published schema is made from these types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windtunnel.engine.process import ENGINE

Seconds = Annotated[float, Meta(ge=0)]
"""Of a key that ends in `_s`; a file may also say `250ms`."""
Positive = Annotated[float, Meta(gt=0)]
Rank = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Word = str | int | float
"""Of a command line; taken as it is written."""
Scalar = str | int | float | bool


class Shape(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mapping of the file; a key that is none of its fields is an error."""


class Target(Shape, frozen=True, kw_only=True):
    """What is drilled: an embedded target, or a server by its address. One of the two."""

    embedded: str | dict[str, Scalar] | None = None
    """Keys of the reference engine (`{ranks: 4}`), or a text as `bench serve --embedded` takes it
    (`paced:ttft=20ms,itl=5ms`)."""
    url: str | None = None
    """Where a server listens, without the endpoint: `http://HOST:8000`."""

    @property
    def engine_flags(self) -> dict[str, Scalar] | None:
        """The flags of `windtunnel engine` by name, its admin API among them; None where it is another target."""
        if isinstance(self.embedded, dict):
            return {**self.embedded, "admin": True}
        name, _, pairs = (self.embedded or "").partition(":")
        if name.strip() != ENGINE:
            return None
        split = [pair.strip().partition("=") for pair in pairs.split(",") if pair.strip()]
        return {**{key: value if equals else True for key, equals, value in split}, "admin": True}

    @property
    def embedded_text(self) -> str | None:
        """The embedded target as `bench serve --embedded` takes it."""
        flags = self.engine_flags
        if flags is None:
            return self.embedded if isinstance(self.embedded, str) else None
        return f"{ENGINE}:{','.join(_pairs(flags))}"


class Rebalance(Shape, frozen=True, kw_only=True):
    """Let the target plan and move its experts, and wait until that is over."""


class SlowRank(Shape, frozen=True, kw_only=True):
    """Let a rank answer each dispatch late."""

    rank: Rank
    delay_s: Seconds


class FailAt(Shape, frozen=True, kw_only=True):
    """Arm a fault: the rank fails when it makes a transition of the transaction. See docs/architecture.md for them."""

    rank: Rank
    transition: str
    """As `transferring+copied`."""
    how: Literal["kill", "hang", "slow"] = "kill"
    occurrence: Annotated[int, Meta(ge=1)] = 1
    """1: the first time from then on."""


class Http(Shape, frozen=True, kw_only=True):
    """Call the target, or any other address."""

    path: str | None = None
    """Of the target: `/scale_elastic_ep`."""
    url: str | None = None
    """A whole address, instead of `path`."""
    method: Annotated[str, Meta(pattern="^[A-Z]+$")] = "POST"
    body: dict[str, Any] | None = None
    """Sent as JSON."""
    headers: dict[str, str] = {}
    timeout_s: Positive = 30.0
    status: int = 200
    """The answer's; with another one the action counts as not done."""


class Exec(Shape, frozen=True, kw_only=True):
    """Run a program, without a shell. Only with `--yes`."""

    command: Annotated[list[Word], Meta(min_length=1)]
    """The program and its arguments."""
    undo: list[Word] | None = None
    """Run at the drill's end, however it ends, if the program was started. Make it harmless where it isn't needed."""
    timeout_s: Positive = 30.0


class Signal(Shape, frozen=True, kw_only=True):
    """Send a signal to a process of this machine: one of `rank`, `pid` or `pid_file`, or else the embedded target.

    To a process that is not the embedded target's only with `--yes`. What is stopped goes on at the drill's end.
    """

    signal: Annotated[str, Meta(pattern="^SIG[A-Z0-9]+$")]
    """As `SIGSTOP`."""
    rank: Rank | None = None
    pid: Annotated[int, Meta(gt=1)] | None = None
    pid_file: str | None = None
    """A file that holds the process's number."""


class Delay(Shape, frozen=True, kw_only=True):
    """The link: let what comes either way wait."""

    delay_s: Seconds
    for_s: Positive | None = None
    """How long; without it to the end."""


class Bandwidth(Shape, frozen=True, kw_only=True):
    """The link: let only so many bytes a second through, either way, all connections together."""

    bytes_per_s: Annotated[float, Meta(gt=0)]
    for_s: Positive | None = None


class Drop(Shape, frozen=True, kw_only=True):
    """The link: lose what comes, so that connections fall silent and stay open; they are reset when it is over."""

    ratio: Share = 1.0
    """Share of connections, of those that are open and of those that come."""
    for_s: Positive | None = None


class Reset(Shape, frozen=True, kw_only=True):
    """The link: reset connections that are open (RST)."""

    ratio: Share = 1.0


class Cut(Shape, frozen=True, kw_only=True):
    """The link: reset all connections, and refuse new ones."""

    for_s: Positive | None = None


class Action(Shape, frozen=True, kw_only=True):
    """One deed: when, and what. Exactly one of `after_s` and `when`, and exactly one of the other keys."""

    after_s: Seconds | None = None
    """After the load's begin."""
    when: str | None = None
    """As soon as a condition holds: `completed >= 100`, with a metric of the load (sent, completed, failed, in_flight),
    of the engine (epoch, balancedness, live_ranks), or of the target's /metrics."""

    rebalance: Rebalance | None = None
    """The engine plans and moves its experts; nothing has to be said: `rebalance:`."""
    kill_rank: Rank | None = None
    """SIGKILL."""
    hang_rank: Rank | None = None
    """It stops, and goes on at the drill's end."""
    resume_rank: Rank | None = None
    """Let one that hangs go on."""
    slow_rank: SlowRank | None = None
    """It answers late."""
    restart_rank: Rank | None = None
    """Its process is started anew, with empty slots."""
    fail_at: FailAt | None = None
    """It dies, hangs or dawdles at a transition, whenever it comes to it."""
    http: Http | None = None
    """A call."""
    exec: Exec | None = None
    """A program."""
    signal: Signal | None = None
    """A signal to a process of this machine."""
    load: dict[str, Any] | None = None
    """Load of its own from then on: flags of `bench serve`, laid over the scenario's."""
    delay: Delay | None = None
    """The link to the target is slow …"""
    bandwidth: Bandwidth | None = None
    """… or narrow …"""
    drop: Drop | None = None
    """… or loses what goes over it …"""
    reset: Reset | None = None
    """… or its connections are reset …"""
    cut: Cut | None = None
    """… or it is cut."""

    @property
    def kinds(self) -> list[str]:
        """The deeds that it names: one, where the scenario makes sense."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @property
    def kind(self) -> str:
        """Which deed it is."""
        return self.kinds[0]

    @property
    def label(self) -> str:
        """The deed in short: `kill_rank 1`."""
        return f"{self.kind} {_short(getattr(self, self.kind))}".strip()


KINDS = tuple(name for name in Action.__struct_fields__ if name not in ("after_s", "when"))
RANK_KINDS = ("kill_rank", "hang_rank", "resume_rank", "restart_rank")
ADMIN_KINDS = ("rebalance", "slow_rank", "fail_at", *RANK_KINDS)
"""Done through the engine's admin API."""
RELAY_KINDS = ("delay", "bandwidth", "drop", "reset", "cut")
"""Done by a relay between the load and the target."""


class Scenario(Shape, frozen=True, kw_only=True):
    """A drill: load on a target, actions meanwhile, and what is expected of the result."""

    title: str
    """What happens, in a few words."""
    about: str = ""
    """What it shows, in a sentence or two."""
    target: Target
    load: dict[str, Any]
    """Flags of `bench serve` by name: `num_prompts: 200`."""
    actions: list[Action] = []
    expect: dict[str, int | float | str] = {}
    """Keys of the result, and what they have to be: `failed: 0`, `recover_s: < 5`."""
    level_ratio: Share = 0.7
    """Share of the speed before an action from which on service counts as back at its level. A smaller one allows for
    what ranks that are gone can't do any more."""
    reference: bool | None = None
    """Send the same requests undisturbed first, to compare outputs. Without it: where the load is greedy (its
    temperature is 0)."""


def _pairs(flags: dict[str, Scalar]) -> Iterator[str]:
    """As an embedded target is written; a switch is there or not."""
    for key, value in flags.items():
        if value is not False:
            yield key if value is True else f"{key}={value}"


def _short(value: Any) -> str:
    if isinstance(value, Struct):
        parts = msgspec.to_builtins(value)
        shown = (
            " ".join(map(str, item)) if isinstance(item, list) else f"{item}" if name in _PLAIN else f"{name}={item}"
            for name, item in parts.items()
            if name not in ("undo", "body", "headers")
        )
        return " ".join(shown)
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items())
    return f"{value}"


_PLAIN = ("rank", "transition", "how", "path", "url", "signal")
"""Keys whose value says what it is."""
