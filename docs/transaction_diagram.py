"""Draws the transaction from its table, for the page that has a place for it."""

from __future__ import annotations

from windtunnel.eplb.transaction.table import COORDINATOR, RANK, Transition

BEGIN = "<!-- The transaction, made by docs/generate.py from its table. Change it there. -->"
END = "<!-- End of the transaction. -->"


def with_diagrams(page: str) -> str:
    """The page with the diagrams between its two markers made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = f"A rank:\n\n{_diagram(RANK)}\n\nThe coordinator:\n\n{_diagram(COORDINATOR)}"
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def _diagram(transitions: tuple[Transition, ...]) -> str:
    """A state diagram in Mermaid; transitions between the same two phases share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for transition in transitions:
        arrows.setdefault((_name(transition.source), _name(transition.target)), []).append(_name(transition.trigger))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_name(transitions[0].source)}"]
    lines += [f"    {source} --> {target}: {', '.join(triggers)}" for (source, target), triggers in arrows.items()]
    return "\n".join([*lines, "```"])


def _name(text: str) -> str:
    return text.replace(" ", "_")
