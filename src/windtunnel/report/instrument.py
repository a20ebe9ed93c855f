"""What the client itself adds to a run's figures, in plain words: as a block for people and as a sentence for files."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.measure.validity import LATENESS_BOUND_MS, Instrument
from windtunnel.report.text import Line
from windtunnel.units import format_duration

_LABEL_COLUMNS = 19


def instrument_lines(instrument: Instrument) -> Iterator[Line]:
    """A block: one line for each thing that there is to say."""
    yield Line("Instrument")
    for label, text in _facts(instrument):
        yield Line(f"  {label:<{_LABEL_COLUMNS}}{text}", rest=" " * (2 + _LABEL_COLUMNS))


def instrument_statement(instrument: Instrument) -> str:
    """The same in a sentence."""
    return f"Instrument: {'; '.join(f'{label} {text}' for label, text in _facts(instrument))}."


def _facts(instrument: Instrument) -> Iterator[tuple[str, str]]:
    yield "arrival times", _stamps(instrument)
    merged = instrument.num_chunks_merged
    if instrument.read_lag_ms is not None:
        but = ", except where chunks were read together" if merged else ""
        yield "client read late", f"p99 {_ms(instrument.read_lag_ms.p99)}, not in the figures{but}"
    if merged:
        yield "read together", _merged(instrument)
    lateness = instrument.send_lateness_ms
    if lateness is not None and not instrument.closed_loop:
        yield "sent late", f"p99 {_ms(lateness.p99)}, max {_ms(lateness.max)}"


def _stamps(instrument: Instrument) -> str:
    kernel, client = instrument.stamped_by_kernel, instrument.stamped_by_client
    total = kernel + client
    if not total:
        return "none: nothing arrived"
    if not client:
        return f"by the kernel ({kernel} of {total} requests)"
    if not kernel:
        return f"by the client when it read ({client} of {total} requests): its own delays are in the figures"
    return (
        f"by the kernel ({kernel} of {total} requests), by the client when it read ({client}): its own delays are in "
        "the figures of these"
    )


def _merged(instrument: Instrument) -> str:
    total, by_client = instrument.num_chunks, instrument.num_chunks_merged_by_client
    text = f"{instrument.num_chunks_merged / total:.1%} of chunks share the arrival time of others"
    if by_client:
        text += f", {by_client / total:.1%} where the client read at least {LATENESS_BOUND_MS:g} ms late"
    return text


def _ms(milliseconds: float) -> str:
    return format_duration(milliseconds / 1e3)
