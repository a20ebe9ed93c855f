"""What a run would send, as text: for `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from windtunnel.loadgen.run import Plan
from windtunnel.units import NS_PER_S, format_duration

_NUM_SHOWN = 10


def plan_text(plan: Plan) -> str:
    """Lengths and schedule of a plan, and its first requests."""
    asked = [sample.output_tokens for sample in plan.samples if sample.output_tokens is not None]
    lines = [
        f"Dry run: nothing was sent to {plan.target}",
        f"Requests:        {len(plan.samples)}",
        f"Tokenizer:       {plan.tokenizer or 'none'}",
        f"Prompt tokens:   {_spread([sample.prompt_tokens for sample in plan.samples])}",
        f"Tokens asked:    {_spread(asked)}",
        f"Schedule:        {_schedule(plan.due_ns)}",
    ]
    if plan.samples:
        lines += ["", "request   due s  prompt  asked"]
        lines += [
            f"{index:7}{due_ns / NS_PER_S:8.3f}{sample.prompt_tokens:8}{sample.output_tokens or '-':>7}"
            for index, (sample, due_ns) in enumerate(zip(plan.samples, plan.due_ns, strict=True))
            if index < _NUM_SHOWN
        ]
    if len(plan.samples) > _NUM_SHOWN:
        lines.append(f"      … and {len(plan.samples) - _NUM_SHOWN} more")
    return "\n".join(lines) + "\n"


def _spread(counts: Sequence[int]) -> str:
    if not counts:
        return "as the server decides"
    return f"{sum(counts)} in all; {min(counts)} to {max(counts)}, mean {mean(counts):.1f}, median {median(counts):g}"


def _schedule(due_ns: Sequence[int]) -> str:
    last_s = max(due_ns, default=0) / NS_PER_S
    if not last_s:
        return "all are due at the start"
    return f"over {format_duration(last_s)}, {(len(due_ns) - 1) / last_s:.2f} requests/s on average"
