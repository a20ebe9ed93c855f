"""The JSON schema of scenarios, for editors and other tools. Made from the types; `reading` checks by the same ones."""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.drill.scenario import KINDS, Scenario
from windtunnel.report.drill import FIGURES

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def scenario_schema() -> dict[str, Any]:
    """The whole document."""
    schema = msgspec.json.schema(Scenario)
    shapes = schema["$defs"]
    for shape in shapes.values():
        for key, kind in shape["properties"].items():
            if key.endswith("_s"):
                shape["properties"][key] = _or_with_unit(kind)
    bound = shapes["Scenario"]["properties"]["expect"].pop("additionalProperties")
    shapes["Scenario"]["properties"]["expect"] |= {
        "properties": {key: {**bound, "description": text} for key, text in FIGURES.items()},
        "additionalProperties": False,
    }
    shapes["Target"]["oneOf"] = _one_of("embedded", "url")
    shapes["Action"]["allOf"] = [{"oneOf": _one_of("after_s", "when")}, {"oneOf": _one_of(*KINDS)}]
    return {"$schema": _DIALECT, "title": "Scenario of windtunnel drill", **schema}


def _or_with_unit(kind: dict[str, Any]) -> dict[str, Any]:
    """A duration in seconds may also be written as text."""
    text = {"type": "string", "examples": ["250ms", "10s"]}
    default = {"default": kind["default"]} if "default" in kind else {}
    return {"anyOf": [*kind.get("anyOf", [kind]), text], **default}


def _one_of(*keys: str) -> list[dict[str, Any]]:
    return [{"required": [key]} for key in keys]
