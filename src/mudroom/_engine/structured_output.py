"""Values a run must emit: checked, asked for again when missing, repaired a bounded number of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from .._core.agents import Output
from .._core.tools import Effect, Tool, ToolResult

EMIT_TOOL = "self.emitvalue"
"""The tool's name (seed 004); wires that refuse the dot send another and map it back."""

MAX_ERRORS = 3
"""Values that may be wrong before the run is given up."""


class Emission(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of the emit tool."""

    emit_variable_name: str
    emit_variable_value: Any


class OutputCollector:
    """What one run has emitted of what it must.

    Arguments:
        expected: the outputs by name; empty means nothing must be emitted, and anything may.
    """

    def __init__(self, expected: Mapping[str, Output]) -> None:
        self._expected = expected
        self.values: dict[str, Any] = {}
        self.error_count = 0

    @property
    def missing(self) -> list[str]:
        """Names not emitted yet that must be, as declared."""
        return [
            name
            for name, output in self._expected.items()
            if name not in self.values and not output.optional
        ]

    @property
    def is_complete(self) -> bool:
        """Whether all that was asked for is there, what may be left out too."""
        return bool(self._expected) and self._expected.keys() <= self.values.keys()

    @property
    def has_too_many_errors(self) -> bool:
        """Whether too many values were wrong."""
        return self.error_count > MAX_ERRORS

    @property
    def reminder(self) -> str:
        """The word for a model that stopped with outputs missing, "" if none is."""
        if not self.missing:
            return ""
        names = ", ".join(self.missing)
        return (
            f"You have stopped calling tools but have not emitted these required outputs: {names}. "
            f"Call {EMIT_TOOL} for each of them now, from what you know; work on first if something is still needed."
        )

    def emit(self, name: str, value: Any) -> ToolResult:
        """Take a value; a later one of the same name takes its place."""
        if self._expected and name not in self._expected:
            return ToolResult(
                f"There is no output {name!r}. Declared: {', '.join(self._expected)}.", error=True
            )
        schema = self._expected[name].schema if name in self._expected else {}
        if schema and (fault := _fault(schema, value)):
            self.error_count += 1
            return ToolResult(
                f"{name} was not accepted: {fault}. Emit it again, corrected.", error=True
            )
        self.values[name] = (
            value if schema or isinstance(value, str) else msgspec.json.encode(value).decode()
        )
        return ToolResult(f"Emitted {name}.")

    def tool(self) -> Tool:
        """The tool a run emits its values with."""
        listed = "".join(
            f"\n- {name}: {output.description}" for name, output in self._expected.items()
        )
        schemas = {name: output.schema for name, output in self._expected.items() if output.schema}
        typed = f"\nJSON Schemas: {msgspec.json.encode(schemas).decode()}" if schemas else ""
        name: dict[str, Any] = {"type": "string"} | (
            {"enum": list(self._expected)} if self._expected else {}
        )
        return Tool(
            name=EMIT_TOOL,
            description=f"Emit one result by name, once for each.{listed}{typed}",
            parameters={
                "type": "object",
                "properties": {
                    "emit_variable_name": name,
                    "emit_variable_value": {} if schemas else {"type": "string"},
                },
                "required": ["emit_variable_name", "emit_variable_value"],
            },
            parse=_parse,
            run=_run,
            effect=Effect.KEYED,
            key=lambda emission: f"emit {emission.emit_variable_name}",
        )


def _fault(schema: dict[str, Any], value: Any) -> str:
    import jsonschema_rs

    found = next(iter(jsonschema_rs.validator_for(schema, offline=True).iter_errors(value)), None)
    if found is None:
        return ""
    path = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in found.instance_path
    ).lstrip(".")
    return f"at {path}: {found.message}" if path else found.message


def _parse(arguments: dict[str, Any]) -> Emission:
    missing = [name for name in Emission.__struct_fields__ if name not in arguments]
    if missing:
        raise ValueError(f"{', '.join(missing)}: required")
    name = arguments["emit_variable_name"]
    if not isinstance(name, str):
        raise ValueError("emit_variable_name: expected a string")
    return Emission(name, arguments["emit_variable_value"])


async def _run(context: Any, emission: Emission) -> ToolResult:
    return context.run.outputs.emit(emission.emit_variable_name, emission.emit_variable_value)
