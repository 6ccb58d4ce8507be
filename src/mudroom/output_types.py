"""Output types: convert a type or schema to named outputs, and emitted values to the type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

import msgspec
from msgspec.structs import replace

from ._core.agents import Output
from ._core.output_declarations import (
    SINGLE_OUTPUT,
    OutputDeclaration,
    parse_outputs,
    parse_schema,
)
from ._core.runs import Reason, Report
from ._engine.structured_output import OutputRefusal
from .errors import UsageError

if TYPE_CHECKING:
    import pydantic

T = TypeVar("T")

_MAX_ERROR_LENGTH = 2_000
"""Maximum characters of an error of a type that the model reads."""


class OutputType(msgspec.Struct, Generic[T], frozen=True):
    """Named outputs, and a function that converts the emitted values to a T."""

    outputs: dict[str, Output]
    convert: Callable[[dict[str, Any]], T]

    def find_refusal(self, values: dict[str, Any]) -> OutputRefusal | None:
        """Return why the type does not accept the emitted values, None if it does."""
        try:
            self.convert(values)
        except Exception as error:  # noqa: BLE001  a type of the caller may raise anything
            return _describe_refusal(error, values)
        return None

    def convert_report(self, report: Report[Any]) -> Report[T]:
        """Replace the outputs with a T if the reason is GOAL, else return the report unchanged."""
        if not report.ok:
            return report
        try:
            return replace(report, outputs=self.convert(report.outputs))
        except Exception as error:  # noqa: BLE001  a type of the caller may raise anything
            problem = "; ".join(problem for _, problem in _list_problems(error))
            text = f"the outputs do not fit their type: {problem}"
            return replace(report, reason=Reason.ERROR, error=text)


def parse_output_type(requested: type[T] | Mapping[str, Any]) -> OutputType[T]:
    """Return the outputs that a caller requests.

    Arguments:
        requested: a type (dataclass, msgspec struct, TypedDict, pydantic model, `list[int]`), a
            JSON Schema, or a mapping of names to descriptions and schemas; see `parse_outputs`.

    Raises UsageError for anything else.
    """
    try:
        if isinstance(requested, Mapping):
            return _make_type(parse_outputs(requested), lambda value: value)
        if hasattr(requested, "__pydantic_validator__"):
            import pydantic

            adapter = pydantic.TypeAdapter(requested)
            return _make_type(
                parse_schema(adapter.json_schema()),
                lambda value: adapter.validate_json(msgspec.json.encode(value)),
            )
        return _make_type(
            parse_schema(msgspec.json.schema(requested)),
            lambda value: msgspec.convert(value, requested),
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"outputs: {str(error).splitlines()[0]}",
            remedy="Use a dict name -> description, a JSON Schema, a dataclass, TypedDict, "
            "msgspec struct or pydantic model.",
        ) from error


def _make_type(declaration: OutputDeclaration, convert: Callable[[Any], T]) -> OutputType[T]:
    if declaration.is_single:
        return OutputType(declaration.outputs, lambda values: convert(values[SINGLE_OUTPUT]))
    return OutputType(declaration.outputs, convert)


def _describe_refusal(error: Exception, values: dict[str, Any]) -> OutputRefusal:
    """Return the note for the model, with the names of the outputs that are wrong by themselves."""
    problems = _list_problems(error)
    text = "; ".join(problem for _, problem in problems)[:_MAX_ERROR_LENGTH]
    names = tuple(dict.fromkeys(name for name, _ in problems if name in values))
    again = ", ".join(names or values)
    return OutputRefusal(f"Not accepted: {text}. Correct it and emit again: {again}.", names)


def _list_problems(error: Exception) -> list[tuple[str, str]]:
    """Return the problems: the name of the output, "" if it is unknown, and the description."""
    if _is_pydantic_error(error):
        return [
            (str(item["loc"][0]), f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
            if item["loc"]
            else ("", item["msg"])
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        text = f"{type(error).__name__}: {error}"
    place = re.search(r"at `\$\.([^.\[`]+)", text)
    return [(place[1] if place else "", text)]


def _is_pydantic_error(error: Exception) -> TypeGuard[pydantic.ValidationError]:
    """Return whether it is an error of pydantic, without importing pydantic."""
    kind = type(error)
    return kind.__module__.startswith("pydantic_core") and kind.__name__ == "ValidationError"
