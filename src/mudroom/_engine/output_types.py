"""Output types: convert a type or schema to named outputs, and emitted values to the type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
from msgspec.structs import replace

from .._core.agents import Output
from .._core.output_declarations import (
    SINGLE_OUTPUT,
    make_output,
    parse_outputs,
    parse_schema,
)
from .._core.runs import Reason, Report
from ..errors import UsageError, quote_value
from .structured_output import OutputRefusal, make_refusal

if TYPE_CHECKING:
    import pydantic

T = TypeVar("T")

_Converter: TypeAlias = Callable[[Any], Any]

_FIELD_MARKERS = ("__dataclass_fields__", "__struct_fields__", "__total__", "_fields")
"""Attributes of dataclasses, structs, TypedDicts and NamedTuples: classes with typed fields."""

_MAX_ERROR_LENGTH = 2_000
"""Maximum characters of an error of a type that the model reads."""


class OutputType(msgspec.Struct, Generic[T], frozen=True):
    """Named outputs, and a function that converts the emitted values to a T.

    Arguments:
        is_by_name: true if T is a dict with the values by name.
    """

    outputs: dict[str, Output]
    convert: Callable[[dict[str, Any]], T]
    is_by_name: bool = False

    def find_refusal(self, values: dict[str, Any]) -> OutputRefusal | None:
        """Return why the type does not accept the emitted values, None if it does."""
        try:
            self.convert(values)
        except Exception as error:  # noqa: BLE001  a type of the caller may raise anything
            return _describe_refusal(error, values)
        return None

    def _has_all(self, values: dict[str, Any]) -> bool:
        required = {name for name, output in self.outputs.items() if not output.optional}
        return bool(values) and required <= values.keys()

    def convert_report(self, report: Report[Any]) -> Report[T]:
        """Replace the outputs with a T if all required ones are there, whatever ended the run.

        A run that reached its goal without them is an ERROR.
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
    """Return the outputs that a caller requests.

    Arguments:
        requested: a type (dataclass, msgspec struct, TypedDict, pydantic model, `list[int]`), a
            JSON Schema, or a mapping of names to descriptions, schemas and types; see
            `parse_outputs`.

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
    """Return the outputs of a JSON Schema, or of names with descriptions, schemas and types."""
    converters: dict[str, _Converter] = {}

    def read_output(name: str, kind: object) -> Output:
        schema, converters[name] = _read_type(cast("type[Any]", kind))
        return make_output(schema)

    declaration = parse_outputs(requested, read_output)
    if declaration.describes_one_value:
        return OutputType(declaration.outputs, lambda values: values[SINGLE_OUTPUT])
    return OutputType(declaration.outputs, _make_converter_by_name(converters), is_by_name=True)


def _read_type(kind: type[Any]) -> tuple[dict[str, Any], _Converter]:
    """Return the JSON Schema of a type, and the function that converts a value to the type.

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
    """Return a type, its arguments, its metadata and the types of its fields, at all levels."""
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
    """Return whether only pydantic can read a part of a type: a class, or metadata of a field."""
    kind = part if isinstance(part, type) else type(part)
    return (
        hasattr(kind, "__get_pydantic_core_schema__")
        or hasattr(kind, "__pydantic_validator__")
        or kind.__module__.partition(".")[0] in ("pydantic", "annotated_types")
    )


def _make_converter_by_name(
    converters: Mapping[str, _Converter],
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that converts each value by its own converter, if there is one."""

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
    """Errors of several values, by the names of the outputs."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        super().__init__(errors)
        self.errors = errors


def _describe_refusal(error: Exception, values: dict[str, Any]) -> OutputRefusal:
    """Return the refusal of values: a note for the model, and the outputs with an own problem."""
    problems = _list_problems(error)
    text = "; ".join(problem for _, problem in problems)[:_MAX_ERROR_LENGTH]
    names = tuple(dict.fromkeys(name for name, _ in problems if name in values))
    again = ", ".join(names or values)
    return make_refusal(text, names, again)


def _list_problems(error: Exception) -> list[tuple[str, str]]:
    """Return the problems: the name of the output, "" if it is unknown, and the description."""
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
    """Return whether it is an error of pydantic, without importing pydantic."""
    kind = type(error)
    return kind.__module__.startswith("pydantic_core") and kind.__name__ == "ValidationError"
