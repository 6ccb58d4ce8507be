"""Output types: convert a type or schema to named outputs, and emitted values to the type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from ._core.agents import Output
from ._core.json_values import find_schema_error
from ._core.runs import Report
from .errors import UsageError

T = TypeVar("T")


class OutputType(msgspec.Struct, Generic[T], frozen=True):
    """Named outputs, and a function that converts the emitted values to a T."""

    outputs: dict[str, Output]
    convert: Callable[[dict[str, Any]], T]

    def convert_report(self, report: Report[Any]) -> Report[T]:
        """Replace the outputs with a T if the reason is GOAL, else return the report unchanged."""
        if not report.ok:
            return report
        return msgspec.structs.replace(report, outputs=self.convert(report.outputs))


def parse_output_type(requested: type[T] | Mapping[str, Any]) -> OutputType[T]:
    """Return the outputs that a caller requests.

    Arguments:
        requested: name -> description, a JSON Schema of an object, or a dataclass, msgspec struct,
            TypedDict or pydantic model.

    Raises UsageError for anything else, and for a schema of something other than an object.
    """
    if isinstance(requested, Mapping):
        return cast("OutputType[T]", _parse_mapping(requested))
    if hasattr(requested, "model_json_schema"):
        model: Any = requested
        return OutputType(_to_outputs(model.model_json_schema()), model.model_validate)
    if (
        dataclasses.is_dataclass(requested)
        or hasattr(requested, "__struct_fields__")
        or hasattr(requested, "__required_keys__")
    ):
        schema = _resolve_reference(msgspec.json.schema(requested))
        return OutputType(_to_outputs(schema), lambda values: msgspec.convert(values, requested))
    raise UsageError(
        f"outputs: {requested!r} does not describe values",
        remedy="Use a dict name -> description, a JSON Schema of an object, a dataclass, "
        "TypedDict, msgspec struct or pydantic model.",
    )


def _parse_mapping(requested: Mapping[str, Any]) -> OutputType[dict[str, Any]]:
    if "properties" in requested or "$ref" in requested:
        outputs = _to_outputs(_resolve_reference(dict(requested)))
        for name, output in outputs.items():
            if reason := find_schema_error(output.schema):
                raise UsageError(f"outputs: {name} has no JSON Schema: {reason}")
        return OutputType(outputs, dict)
    if not all(isinstance(value, str) for value in requested.values()):
        raise UsageError(
            "outputs: descriptions must be texts",
            remedy='Write {"title": "the title"} or a JSON Schema of an object.',
        )
    return OutputType({name: Output(text) for name, text in requested.items()}, dict)


def _resolve_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that the top-level `$ref` names, with the definitions beside it."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions: dict[str, Any] = schema.get("$defs", {})
    target = definitions.get(reference.rsplit("/", 1)[-1])
    if not isinstance(target, dict):
        raise UsageError(
            f"outputs: the JSON Schema refers to {reference}, which is not in its $defs"
        )
    return {**target, "$defs": definitions}


def _to_outputs(schema: dict[str, Any]) -> dict[str, Output]:
    properties: Mapping[str, dict[str, Any]] | None = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise UsageError("outputs: the JSON Schema is not one of an object with properties")
    required: list[str] = schema.get("required", [])
    outputs: dict[str, Output] = {}
    for name, property_schema in properties.items():
        complete = property_schema
        if schema.get("$defs") and b'"$ref"' in msgspec.json.encode(property_schema):
            complete = {**property_schema, "$defs": schema["$defs"]}
        outputs[name] = Output(
            property_schema.get("description", ""), complete, optional=name not in required
        )
    return outputs
