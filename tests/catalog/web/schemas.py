"""As much of JSON Schema (2020-12) as msgspec writes: whether a value is what a schema says."""

from __future__ import annotations

from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
_KNOWN = frozenset(
    (
        "$ref", "anyOf", "enum", "type", "properties", "required", "items", "prefixItems", "additionalProperties",
        "minItems", "maxItems", "default", "title", "description", "minimum", "maximum",
    )
)  # fmt: skip


def fault(value: Any, schema: Any, schemas: dict[str, Any], at: str = "") -> str:
    """The first thing in which they differ; empty: none. A keyword that is not known here is a fault too."""
    if isinstance(schema, bool):
        return "" if schema else f"{at}: nothing is allowed"
    if unknown := set(schema) - _KNOWN:
        return f"{at}: keywords {unknown}"
    if "$ref" in schema:
        return fault(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, at)
    if "anyOf" in schema:
        faults = [fault(value, each, schemas, at) for each in schema["anyOf"]]
        return "" if "" in faults else faults[0]
    if "enum" in schema and value not in schema["enum"]:
        return f"{at}: {value!r} is none of {schema['enum']}"
    named = schema.get("type")
    if named and (not isinstance(value, _TYPES[named]) or (isinstance(value, bool) and named != "boolean")):
        return f"{at}: {value!r} is no {named}"
    return _of_object(value, schema, schemas, at) if isinstance(value, dict) else _of_array(value, schema, schemas, at)


def _of_object(value: dict[str, Any], schema: dict[str, Any], schemas: dict[str, Any], at: str) -> str:
    properties = schema.get("properties", {})
    if missing := set(schema.get("required", ())) - set(value):
        return f"{at}: without {missing}"
    for name, each in value.items():
        known = properties.get(name, schema.get("additionalProperties", "properties" not in schema))
        if found := fault(each, known, schemas, f"{at}/{name}"):
            return found
    return ""


def _of_array(value: Any, schema: dict[str, Any], schemas: dict[str, Any], at: str) -> str:
    if not isinstance(value, list):
        return ""
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{at}: {len(value)} items"
    first = schema.get("prefixItems", [])
    for number, each in enumerate(value):
        of_item = first[number] if number < len(first) else schema.get("items", True)
        if found := fault(each, of_item, schemas, f"{at}/{number}"):
            return found
    return ""
