"""Structured output: values that a run must emit, with their schema checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from .._core.agents import Output
from .._core.json_values import JsonValue
from .._core.tools import Effect, Tool, ToolCategory, ToolResult

EMIT_TOOL = "self.emitvalue"
"""Name of the tool that emits a value.

Model protocols that do not allow the dot send another name and map it back.
"""

MAX_ERRORS = 3
"""Maximum number of values that a schema or a type refuses; one more ends the run."""

_NOT_ACCEPTED = "Not accepted: "
_EMIT_AGAIN = ". Correct it and emit again: "


class Emission(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the emit tool."""

    emit_variable_name: str
    emit_variable_value: JsonValue


class OutputRefusal(Struct, frozen=True):
    """Refusal of emitted values by the type that the caller requested.

    Arguments:
        note: the reason, for the model.
        names: outputs that are wrong by themselves; () if only their combination is wrong.
    """

    note: str
    names: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The note without the request to emit again."""
        return self.note.removeprefix(_NOT_ACCEPTED).rpartition(_EMIT_AGAIN)[0] or self.note


def make_refusal(reason: str, names: tuple[str, ...], again: str) -> OutputRefusal:
    """Return a refusal. `again`: names of the outputs to emit again."""
    return OutputRefusal(f"{_NOT_ACCEPTED}{reason}{_EMIT_AGAIN}{again}.", names)


class OutputChecks:
    """Checks of the values that runs emitted, by the types that their callers requested."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[dict[str, Any]], OutputRefusal | None]] = {}

    def add(self, run_id: str, check: Callable[[dict[str, Any]], OutputRefusal | None]) -> None:
        """Check the values of a run before it ends with GOAL."""
        self._checks[run_id] = check

    def remove(self, run_id: str) -> None:
        """Remove the check of a run, if it has one."""
        self._checks.pop(run_id, None)

    async def find_refusal(self, run_id: str, values: dict[str, Any]) -> OutputRefusal | None:
        """Return why the values are refused, None if they are accepted."""
        check = self._checks.get(run_id)
        return check(values) if check else None


class OutputCollector:
    """Values that one run has emitted.

    Arguments:
        expected: the declared outputs by name. If empty, nothing is required and everything is
            allowed.
    """

    def __init__(self, expected: Mapping[str, Output]) -> None:
        self._expected = expected
        self.values: dict[str, Any] = {}
        self.error_count = 0
        self.last_error = ""
        self._must_change = False
        """True after a refusal, until the run emits a value again."""

    @property
    def missing(self) -> list[str]:
        """Names of required outputs that are not emitted yet, in declared order."""
        return [
            name
            for name, output in self._expected.items()
            if name not in self.values and not output.optional
        ]

    @property
    def has_every_value(self) -> bool:
        """True if all declared outputs are emitted, optional ones too, and none must change."""
        is_emitted = bool(self._expected) and self._expected.keys() <= self.values.keys()
        return is_emitted and not self._must_change

    @property
    def has_too_many_errors(self) -> bool:
        """True if more than MAX_ERRORS values were wrong."""
        return self.error_count > MAX_ERRORS

    @property
    def reminder(self) -> str:
        """Note for a model that stopped while outputs are missing; "" if none is."""
        if not self.missing:
            return ""
        names = ", ".join(self.missing)
        return (
            f"You have stopped calling tools but have not emitted these required outputs: {names}. "
            f"Call {EMIT_TOOL} for each of them now, with what you know; "
            "work on first if something is still needed."
        )

    def emit(self, name: str, value: JsonValue) -> ToolResult:
        """Check and store a value; it replaces an earlier one of the same name."""
        if self._expected and name not in self._expected:
            declared = ", ".join(self._expected)
            return ToolResult(f"There is no output {name!r}. Declared: {declared}.", error=True)
        schema = self._expected[name].schema if name in self._expected else {}
        if schema and (error := _check_schema(schema, value)):
            self.error_count += 1
            self.last_error = f"{name}: {error}"
            text = f"{name} was not accepted: {error}. Emit it again, corrected."
            return ToolResult(text, error=True)
        self._must_change = False
        is_text = isinstance(value, str)
        self.values[name] = value if schema or is_text else msgspec.json.encode(value).decode()
        return ToolResult(f"Emitted {name}.")

    def refuse(self, refusal: OutputRefusal) -> None:
        """Take back values that their type refuses; the run must emit again."""
        self.error_count += 1
        self.last_error = refusal.reason
        self._must_change = True
        for name in refusal.names:
            self.values.pop(name, None)

    def make_tool(self) -> Tool:
        """Return the tool that emits values of this run."""
        outputs = "".join(f"\n- {name}: {out.description}" for name, out in self._expected.items())
        schemas = {name: out.schema for name, out in self._expected.items() if out.schema}
        schema_text = f"\nJSON Schemas: {msgspec.json.encode(schemas).decode()}" if schemas else ""
        name_schema: dict[str, Any] = {"type": "string"}
        if self._expected:
            name_schema["enum"] = list(self._expected)
        return Tool(
            name=EMIT_TOOL,
            description=f"Emit one result by name, once for each.{outputs}{schema_text}",
            parameters={
                "type": "object",
                "properties": {
                    "emit_variable_name": name_schema,
                    "emit_variable_value": {} if schemas else {"type": "string"},
                },
                "required": ["emit_variable_name", "emit_variable_value"],
            },
            parse=_parse,
            run=self._run,
            effect=Effect.KEYED,
            category=ToolCategory.AGENT,
            get_key=lambda emission: f"emit {emission.emit_variable_name}",
        )

    async def _run(self, _: object, emission: Emission) -> ToolResult:
        return self.emit(emission.emit_variable_name, emission.emit_variable_value)


def _check_schema(schema: dict[str, Any], value: JsonValue) -> str:
    """Return the first error of a value, "" if it fits the schema."""
    import jsonschema_rs

    errors = jsonschema_rs.validator_for(schema, offline=True).iter_errors(value)
    error = next(iter(errors), None)
    if error is None:
        return ""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    path = "".join(steps).lstrip(".")
    return f"at {path}: {error.message}" if path else error.message


def _parse(arguments: dict[str, Any]) -> Emission:
    missing = [name for name in Emission.__struct_fields__ if name not in arguments]
    if missing:
        raise ValueError(f"{', '.join(missing)}: required")
    name = arguments["emit_variable_name"]
    if not isinstance(name, str):
        raise ValueError("emit_variable_name: expected a string")
    return Emission(name, arguments["emit_variable_value"])
