"""Structured output: declared by a type or schema, emitted by a run, checked and converted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeAlias,
    TypeGuard,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._core.agents import Output
from .._core.json_values import JsonValue
from .._core.messages import ToolCallBlock
from .._core.output_declarations import (
    SINGLE_OUTPUT,
    make_output,
    parse_outputs,
    parse_schema,
)
from .._core.runs import Reason, Report
from .._core.schemas import NOT_JSON, find_json, make_sendable_value, read_leniently
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..errors import UsageError, quote_value, shorten_text

if TYPE_CHECKING:
    import pydantic


EMIT_TOOL = "self.emitvalue"
"""Name of the tool that emits a value.

Wires that do not allow the dot send another name and map it back.
"""

MAX_REPAIRS = 3  # attempts to repair refused values; the next refusal ends the run
MAX_REMINDERS = 5  # until a run that no answer can finish ends (S19)

MAX_REPEATS = 5
"""Consecutive answers that only emit outputs again. The next one ends the run."""

REMINDER_START = "You have stopped calling tools but have not emitted these required outputs: "

_MAX_REFUSAL = 500  # characters of the last refusal that a report quotes

_WAS_NOT_ACCEPTED = " was not accepted: "
_CORRECTED = ". Emit it again, corrected."
_NOT_ACCEPTED = "Not accepted: "
_EMIT_AGAIN = ". Correct it and emit again: "


class Emission(Struct, frozen=True, forbid_unknown_fields=True):
    emit_variable_name: str
    emit_variable_value: JsonValue


class OutputRefusal(Struct, frozen=True):
    """A refusal of emitted values by the type the caller requested."""

    note: str  # the reason, for the model
    names: tuple[str, ...] = ()  # outputs that are wrong; () if only their combination is

    @property
    def reason(self) -> str:
        """The note without the request to emit again."""
        return self.note.removeprefix(_NOT_ACCEPTED).rpartition(_EMIT_AGAIN)[0] or self.note


class OutputChecks:
    """Checks of emitted values against the types that callers requested, by run."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[dict[str, Any]], OutputRefusal | None]] = {}

    def add(self, run_id: str, check: Callable[[dict[str, Any]], OutputRefusal | None]) -> None:
        """Have a run's values checked before it ends with GOAL."""
        self._checks[run_id] = check

    def remove(self, run_id: str) -> None:
        self._checks.pop(run_id, None)

    async def find_refusal(self, run_id: str, values: dict[str, Any]) -> OutputRefusal | None:
        check = self._checks.get(run_id)
        return check(values) if check else None


class OutputCollector:
    """The values a run has emitted, and how often it had to be corrected.

    The counts start again whenever an output is accepted for the first time: a run that makes
    progress may need as many answers as it has outputs. If no outputs are expected, anything goes.

    Attributes:
        refusal_count: answers with a refused value. All calls of an answer count once, because the
            model reads their errors together.
        reminder_count: reminders of missing outputs.
        repeat_count: consecutive answers that did nothing but emit outputs again.
    """

    def __init__(self, expected: Mapping[str, Output]) -> None:
        self._expected = expected
        self.values: dict[str, Any] = {}
        self.refusal_count = 0
        self.reminder_count = 0
        self.repeat_count = 0
        self.last_error = ""
        self.has_given_up = False
        self._accepted: set[str] = set()  # ever, even if their type refused them later
        self._is_repeat = False  # the last answer did nothing but emit outputs again
        self._only_emits = False
        self._is_refused = False  # a value of the last answer was refused
        self._text_error = ""  # why the last answer's JSON was not taken, for the reminder
        self._must_change = False  # between a refusal by the type and the next emitted value

    @property
    def missing(self) -> list[str]:
        """Names of required outputs not emitted yet, in declared order."""
        if not self._expected:
            return []
        return [name for name in self._required if name not in self.values]

    @property
    def _required(self) -> list[str]:
        return [name for name, output in self._expected.items() if not output.optional]

    @property
    def is_complete(self) -> bool:
        """True if the run has emitted its outputs, with none left to repair.

        These are the required ones, or all of them if none is required. Optional ones that the
        model cannot repair are left out.
        """
        if not self._expected or self._must_change:
            return False
        if self._is_refused and not self.has_too_many_refusals:
            return False
        return all(name in self.values for name in self._required or self._expected)

    @property
    def has_too_many_refusals(self) -> bool:
        """True if values were refused and MAX_REPAIRS more answers did not repair them."""
        return self.refusal_count > MAX_REPAIRS

    @property
    def has_too_many_repeats(self) -> bool:
        """True if the last answer and MAX_REPEATS before it only emitted outputs again."""
        return bool(self._expected) and self._is_repeat and self.repeat_count > MAX_REPEATS

    @property
    def failed(self) -> tuple[str, ...]:
        """Outputs the run has given up on, if it has."""
        if not self.has_given_up:
            return ()
        return tuple(self.missing or self._required or self._expected)

    @property
    def reminder(self) -> str:
        """The note for a model that stopped with outputs missing; "" if none is."""
        if not self.missing:
            return ""
        text = (
            f"{REMINDER_START}{', '.join(self.missing)}. "
            f"Call {EMIT_TOOL} for each of them now, with what you know; "
            "work on first if something is still needed."
        )
        if not self._text_error:
            return text
        return f"{text} The JSON of your answer was not accepted: {self._text_error}."

    def begin_answer(self, calls: Sequence[ToolCallBlock]) -> None:
        if not self._is_repeat:
            self.repeat_count = 0
        self._is_refused = False
        self._is_repeat = False
        self._only_emits = not self._expected or all(call.name == EMIT_TOOL for call in calls)
        self._text_error = ""

    def emit(self, name: str, value: JsonValue) -> ToolResult:
        """Read, check and store a value, replacing an earlier one of the same name."""
        if self._expected and name not in self._expected:
            declared = ", ".join(self._expected)
            text = f"There is no output {name!r}. Declared: {declared}."
            self.add_refusal(text)
            return ToolResult(text, error=True)
        value, error = self._read(name, value)
        if error:
            text = f"{name}{_WAS_NOT_ACCEPTED}{error}{_CORRECTED}"
            self.add_refusal(text)
            return ToolResult(text, error=True)
        self._store({name: value})
        return ToolResult(f"Emitted {name}.")

    def take_text(self, text: str) -> None:
        """Accept values stated as JSON instead of calls, if the answer has all of them."""
        if not self._expected or (found := find_json(text)) is NOT_JSON:
            return
        error = ""
        for stated in self._list_stated(found):
            read = {name: self._read(name, value) for name, value in stated.items()}
            errors = [f"{name}: {reason}" for name, (_, reason) in read.items() if reason]
            missing = [name for name in self.missing if name not in read]
            if not errors and not missing:
                self._store({name: value for name, (value, _) in read.items()})
                return
            error = error or "; ".join(errors)
        self._text_error = error

    def _list_stated(self, found: JsonValue) -> list[dict[str, JsonValue]]:
        """List the possible meanings of an answer's JSON as values by name, likeliest first."""
        stated: list[dict[str, JsonValue]] = []
        if isinstance(found, dict):
            by_name = {name: found[name] for name in self._expected if name in found}
            stated += [by_name] if by_name else []
        if [*self._expected] == [SINGLE_OUTPUT]:
            has_schema = bool(self._expected[SINGLE_OUTPUT].schema)
            if has_schema:
                stated.insert(0, {SINGLE_OUTPUT: found})
            elif isinstance(found, str):
                stated.append({SINGLE_OUTPUT: found})
        return stated

    def _read(self, name: str, value: JsonValue) -> tuple[JsonValue, str]:
        """Return a value as its output's type reads it, and the error, "" if there is none."""
        schema = self._expected[name].schema if name in self._expected else {}
        if not schema:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode(), ""
        if not _check_schema(schema, value):
            return value, ""
        value = read_leniently(schema, value)
        return value, _check_schema(schema, value)

    def _store(self, values: Mapping[str, Any]) -> None:
        self._must_change = False
        self.values.update(values)
        if not values.keys() <= self._accepted:
            self._accepted.update(values)
            self.reminder_count = 0
            self.repeat_count = 0
            self.refusal_count = int(self._is_refused)
        elif self._only_emits and not self._is_repeat:
            self._is_repeat = True
            self.repeat_count += 1

    def add_refusal(self, text: str) -> None:
        """Note that the last answer had a refused value. `text`: what the model is told."""
        self.last_error = text.removesuffix(_CORRECTED).replace(_WAS_NOT_ACCEPTED, ": ", 1)
        self.refusal_count += not self._is_refused
        self._is_refused = True

    def refuse(self, refusal: OutputRefusal) -> None:
        """Take back values refused by their type; the run must emit them again."""
        self.add_refusal(refusal.reason)
        self._must_change = True
        for name in refusal.names:
            self.values.pop(name, None)

    def give_up(self) -> str:
        """Record that the run ends without its outputs; return the error for its report."""
        self.has_given_up = True
        if self.has_too_many_refusals:
            last = shorten_text(self.last_error, _MAX_REFUSAL)
            count = self.refusal_count
            return f"the emitted outputs were refused {count} times, the last time: {last}"
        names = ", ".join(self.missing)
        if self.has_too_many_repeats:
            count = self.repeat_count
            return f"the model did not emit {names}; its last {count} answers emitted others again"
        return f"the model did not emit {names} after {self.reminder_count} reminders"

    def make_tool(self) -> Tool:
        outputs = "".join(f"\n- {name}: {out.description}" for name, out in self._expected.items())
        name_schema: dict[str, Any] = {"type": "string"}
        if self._expected:
            name_schema["enum"] = list(self._expected)
        return Tool(
            name=EMIT_TOOL,
            description=f"Emit one result by name, once for each.{outputs}",
            parameters={
                "type": "object",
                "properties": {
                    "emit_variable_name": name_schema,
                    "emit_variable_value": _describe_values(self._expected),
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


def _describe_values(expected: Mapping[str, Output]) -> dict[str, Any]:
    """Return the schema of a value: a choice of the outputs' schemas, each with its names.

    All providers accept a choice inside a property, but not at the root of the parameters.
    """
    names: dict[bytes, list[str]] = {}
    for name, output in expected.items():
        schema = make_sendable_value(output.schema or {"type": "string"})
        own = {key: value for key, value in schema.items() if key not in ("title", "description")}
        names.setdefault(msgspec.json.encode(own), []).append(name)
    schemas: list[dict[str, Any]] = [msgspec.json.decode(encoded) for encoded in names]
    if len(schemas) <= 1:
        return schemas[0] if schemas else {"type": "string"}
    described = zip(schemas, names.values(), strict=True)
    return {"anyOf": [{**schema, "description": ", ".join(each)} for schema, each in described]}


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


T = TypeVar("T")

_Converter: TypeAlias = Callable[[Any], Any]

_FIELD_MARKERS = ("__dataclass_fields__", "__struct_fields__", "__total__", "_fields")
"""Attributes that mark classes with typed fields: dataclass, struct, TypedDict, NamedTuple."""

_MAX_ERROR_LENGTH = 2_000  # characters of a type's error that the model reads


class OutputType(msgspec.Struct, Generic[T], frozen=True):
    """Named outputs, and a function that converts emitted values to a T.

    `is_by_name`: T is a dict of the values by name.
    """

    outputs: dict[str, Output]
    convert: Callable[[dict[str, Any]], T]
    is_by_name: bool = False

    def find_refusal(self, values: dict[str, Any]) -> OutputRefusal | None:
        try:
            self.convert(values)
        except Exception as error:  # noqa: BLE001  a type of the caller may raise anything
            return _describe_refusal(error, values)
        return None

    def _has_all(self, values: dict[str, Any]) -> bool:
        required = {name for name, output in self.outputs.items() if not output.optional}
        return bool(values) and required <= values.keys()

    def convert_report(self, report: Report[Any]) -> Report[T]:
        """Convert the outputs to a T if all required ones are there, whatever ended the run.

        A run that reached its goal without them becomes an ERROR.
        """
        if not (report.ok or self._has_all(report.outputs)):
            return report
        try:
            return replace(report, outputs=self.convert(report.outputs))
        except Exception as error:  # noqa: BLE001  a type of the caller may raise anything
            if not report.ok:
                return report
            problem = "; ".join(problem for _, problem in _list_problems(error))
            text = f"the outputs do not fit their type: {problem}"
            return replace(report, reason=Reason.ERROR, error=text)


def parse_output_type(requested: type[T] | Mapping[str, Any]) -> OutputType[T]:
    """Parse the outputs that a caller requests.

    `requested` is a type (dataclass, msgspec struct, TypedDict, pydantic model, `list[int]`), a
    JSON Schema, or a mapping of names to descriptions, schemas and types; see `parse_outputs`.

    Raises UsageError for anything else.
    """
    try:
        if isinstance(requested, Mapping):
            return _parse_mapping(requested)
        schema, convert = _read_type(requested)
        declaration = parse_schema(schema)
        if not declaration.describes_one_value:
            return OutputType(declaration.outputs, convert)
        convert_by_name = _make_converter_by_name({SINGLE_OUTPUT: convert})
        return OutputType(
            declaration.outputs, lambda values: convert_by_name(values)[SINGLE_OUTPUT]
        )
    except (TypeError, ValueError, NameError, ImportError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"outputs: {reason}",
            remedy="Use a dict name -> description, a JSON Schema, a dataclass, TypedDict, "
            "msgspec struct or pydantic model.",
        ) from error


def _parse_mapping(requested: Mapping[str, Any]) -> OutputType[Any]:
    converters: dict[str, _Converter] = {}

    def read_output(name: str, kind: object) -> Output:
        schema, converters[name] = _read_type(cast("type[Any]", kind))
        return make_output(schema)

    declaration = parse_outputs(requested, read_output)
    if declaration.describes_one_value:
        return OutputType(declaration.outputs, lambda values: values[SINGLE_OUTPUT])
    return OutputType(declaration.outputs, _make_converter_by_name(converters), is_by_name=True)


def _read_type(kind: type[Any]) -> tuple[dict[str, Any], _Converter]:
    """Return a type's JSON Schema, and the function that converts a value to it.

    Types with pydantic parts are read by pydantic, all others by msgspec.
    """
    parts = _list_parts(kind)
    if not any(map(_needs_pydantic, parts)):
        try:
            schema = msgspec.json.schema(kind)
        except TypeError as error:
            raise TypeError(f"{quote_value(kind)} is not a type that JSON can hold") from error
        return schema, lambda value: msgspec.convert(value, kind, str_keys=True)
    if any(isinstance(part, msgspec.Meta) or hasattr(part, "__struct_fields__") for part in parts):
        raise TypeError("a type cannot have both pydantic parts and msgspec structs or `Meta`")
    import pydantic

    adapter = pydantic.TypeAdapter[Any](kind)
    return adapter.json_schema(), lambda value: adapter.validate_json(msgspec.json.encode(value))


def _list_parts(kind: object) -> list[Any]:
    """List a type with its arguments, metadata and field types, at all levels."""
    import dataclasses

    parts: list[Any] = [kind]
    classes: set[type] = set()
    for part in parts:  # the list grows while it is read
        parts.extend(get_args(part))
        for attribute in ("__supertype__", "__value__"):  # of a NewType, of a type alias
            if hasattr(part, attribute):
                parts.append(getattr(part, attribute))
        owner = get_origin(part) or part
        if not isinstance(owner, type) or owner in classes or _needs_pydantic(owner):
            continue
        classes.add(owner)
        if any(hasattr(owner, marker) for marker in _FIELD_MARKERS):
            parts.extend(get_type_hints(owner, include_extras=True).values())
        if dataclasses.is_dataclass(owner):
            parts.extend(field.default for field in dataclasses.fields(owner))
    return parts


def _needs_pydantic(part: object) -> bool:
    """Return whether only pydantic can read this part of a type: a class, or a field's metadata."""
    kind = part if isinstance(part, type) else type(part)
    return (
        hasattr(kind, "__get_pydantic_core_schema__")
        or hasattr(kind, "__pydantic_validator__")
        or kind.__module__.partition(".")[0] in ("pydantic", "annotated_types")
    )


def _make_converter_by_name(
    converters: Mapping[str, _Converter],
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that converts each value with its own converter, if it has one."""

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        converted = dict(values)
        errors: dict[str, Exception] = {}
        for name, convert_value in converters.items():
            if name not in values:
                continue
            try:
                converted[name] = convert_value(values[name])
            except Exception as error:  # noqa: BLE001  a type of the caller may raise anything
                errors[name] = error
        if errors:
            raise _ConversionError(errors)
        return converted

    return convert


class _ConversionError(Exception):
    """The errors of several values, by output name."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        super().__init__(errors)
        self.errors = errors


def _describe_refusal(error: Exception, values: dict[str, Any]) -> OutputRefusal:
    problems = _list_problems(error)
    text = "; ".join(problem for _, problem in problems)[:_MAX_ERROR_LENGTH]
    names = tuple(dict.fromkeys(name for name, _ in problems if name in values))
    again = ", ".join(names or values)
    return OutputRefusal(f"{_NOT_ACCEPTED}{text}{_EMIT_AGAIN}{again}.", names)


def _list_problems(error: Exception) -> list[tuple[str, str]]:
    """List the problems as pairs of output name, "" if unknown, and description."""
    if isinstance(error, _ConversionError):
        return [
            (name, f"{name}: {problem}")
            for name, inner in error.errors.items()
            for _, problem in _list_problems(inner)
        ]
    if _is_pydantic_error(error):
        return [
            (str(item["loc"][0]), f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
            if item["loc"]
            else ("", item["msg"])
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    if not isinstance(error, msgspec.ValidationError):
        return [("", f"the validator raised {type(error).__name__}: {error}")]
    from .._core.schemas import explain_mismatch

    place = re.search(r"at `\$\.([^.\[`]+)", str(error))
    return [(place[1] if place else "", explain_mismatch(error, what="value"))]


def _is_pydantic_error(error: Exception) -> TypeGuard[pydantic.ValidationError]:
    """Return whether an error comes from pydantic, without importing it."""
    kind = type(error)
    return kind.__module__.startswith("pydantic_core") and kind.__name__ == "ValidationError"
