"""What a caller wants emitted, in any of the ways Python people say it, as named outputs and a way back to their type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from ._core.agents import Output, Report
from .errors import UsageError

T = TypeVar("T")


class OutputType(msgspec.Struct, Generic[T], frozen=True):
    """Named outputs, and how the emitted values become a T."""

    outputs: dict[str, Output]
    convert: Callable[[dict[str, Any]], T]

    def convert_report(self, report: Report[Any]) -> Report[T]:
        """The report with its outputs as a T if it is GOAL; else with the bare values that were valid."""
        return (
            msgspec.structs.replace(report, outputs=self.convert(report.outputs))
            if report.ok
            else report
        )


def parse_output_type(wanted: type[T] | Mapping[str, Any]) -> OutputType[T]:
    """The shape of `wanted`.

    Arguments:
        wanted: name -> description; a JSON Schema of an object; or a dataclass, msgspec struct, TypedDict or pydantic model.

    Errors: UsageError for anything else, and for a schema that is not an object's.
    """
    if isinstance(wanted, Mapping):
        return cast("OutputType[T]", _mapped(wanted))
    if hasattr(wanted, "model_json_schema"):
        model: Any = wanted
        return OutputType(_properties(model.model_json_schema()), model.model_validate)
    if (
        dataclasses.is_dataclass(wanted)
        or hasattr(wanted, "__struct_fields__")
        or hasattr(wanted, "__required_keys__")
    ):
        schema = msgspec.json.schema(wanted)
        return OutputType(
            _properties(_followed(schema)), lambda values: msgspec.convert(values, wanted)
        )
    raise UsageError(
        f"outputs: {wanted!r} is no description of values",
        remedy="Give a dict name -> description, a JSON Schema of an object, a dataclass, TypedDict, msgspec struct or pydantic model.",
    )


def _mapped(wanted: Mapping[str, Any]) -> OutputType[dict[str, Any]]:
    if "properties" in wanted or "$ref" in wanted:
        outputs = _properties(_followed(dict(wanted)))
        for name, output in outputs.items():
            _check(name, output.schema)
        return OutputType(outputs, dict)
    if not all(isinstance(value, str) for value in wanted.values()):
        raise UsageError(
            "outputs: descriptions must be texts",
            remedy='Write {"title": "the title"} or a JSON Schema of an object.',
        )
    return OutputType({name: Output(text) for name, text in wanted.items()}, dict)


def _check(name: str, schema: dict[str, Any]) -> None:
    """Raise UsageError for what is no JSON Schema; references are not followed out of it, to the network least of all."""
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise UsageError(
            f"outputs: {name} has no JSON Schema: {str(error).splitlines()[0]}"
        ) from None


def _followed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema its top `$ref` points to, with the definitions beside it."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions: dict[str, Any] = schema.get("$defs", {})
    found = definitions.get(reference.rsplit("/", 1)[-1])
    if not isinstance(found, dict):
        raise UsageError(
            f"outputs: the JSON Schema refers to {reference}, which is not in its $defs"
        )
    return {**found, "$defs": definitions}


def _properties(schema: dict[str, Any]) -> dict[str, Output]:
    if schema.get("type", "object") != "object" or not isinstance(
        schema.get("properties"), Mapping
    ):
        raise UsageError("outputs: the JSON Schema is not one of an object with properties")
    required: list[str] = schema.get("required", [])
    shared = {"$defs": schema["$defs"]} if schema.get("$defs") else {}
    properties: Mapping[str, dict[str, Any]] = schema["properties"]
    return {
        name: Output(
            part.get("description", ""),
            {**part, **shared} if _refers(part) else part,
            optional=name not in required,
        )
        for name, part in properties.items()
    }


def _refers(part: dict[str, Any]) -> bool:
    return b'"$ref"' in msgspec.json.encode(part)
