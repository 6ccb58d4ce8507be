"""Tools made from Python functions and from JSON Schema declarations."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast, overload

import msgspec

from ..._core.json_values import find_schema_error
from ..._core.ports import ToolContext
from ..._core.tools import Effect, Tool, ToolResult
from ...errors import UsageError, quote_value
from ._schema import build_parser, build_schema

ToolFunction = Callable[..., Any]


@overload
def tool(function: ToolFunction, /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = Effect.EFFECTFUL,
    needs_confirmation: bool = False,
) -> Callable[[ToolFunction], Tool]: ...
def tool(
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = Effect.EFFECTFUL,
    needs_confirmation: bool = False,
) -> Tool | Callable[[ToolFunction], Tool]:
    """Make a Tool from a function with type hints and a docstring.

    An async function runs on the event loop, any other in a thread. It returns a str, a ToolResult,
    or a value that can be JSON. A parameter annotated `ToolContext` gets the run's context and is
    hidden from the model. `Annotated[int, "in metres"]` describes a parameter to the model.

    Arguments:
        name: name for the model; if None, the function's.
        description: text for the model; if None, the docstring's first paragraph.
        effect: EFFECTFUL runs alone and at most once; PURE may run in parallel and again.
        needs_confirmation: the user must approve each call.

    Raises UsageError if a parameter has no JSON Schema.

    Example:
        @tool
        async def weather(city: str, days: int = 1) -> str:
            "Return the weather in a city."
    """

    def make(function: ToolFunction) -> Tool:
        if not hasattr(function, "__name__"):
            raise UsageError(
                f"{quote_value(function)} is not a function with a name",
                where="tool",
                remedy="Write a function around it.",
            )
        arguments, contexts = _read_signature(function)
        return Tool(
            name=name or function.__name__,
            description=description if description is not None else _get_first_paragraph(function),
            parameters=build_schema(arguments),
            parse=build_parser(arguments),
            run=_make_run(function, contexts),
            effect=effect,
            needs_confirmation=needs_confirmation,
            uses_context=bool(contexts),
        )

    return make if function is None else make(function)


def declare_tool(
    name: str,
    description: str,
    parameters: dict[str, Any],
    handler: Callable[[dict[str, Any]], Any] | None = None,
) -> Tool:
    """Make a Tool from a JSON Schema.

    Arguments:
        handler: takes the arguments, async or not, and returns the same as a `tool` function.
            Without a handler, each call gives an error result.

    Raises UsageError if `parameters` is not a schema.
    """
    import jsonschema_rs

    if reason := find_schema_error(parameters):
        raise UsageError(f"the parameters of tool {name!r} are not a JSON Schema: {reason}")
    validator = jsonschema_rs.validator_for(parameters, offline=True)

    def parse(arguments: dict[str, Any]) -> dict[str, Any]:
        for error in validator.iter_errors(arguments):
            place = ".".join(str(step) for step in error.instance_path) or "arguments"
            raise ValueError(f"{place}: {error.message}")
        return arguments

    async def run(_: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        if handler is None:
            return ToolResult(f"{name} has no implementation here. Do without it.", error=True)
        return _to_result(await _call(handler, arguments))

    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        parse=parse,
        run=run,
        uses_context=False,
    )


def _read_signature(function: ToolFunction) -> tuple[type[msgspec.Struct], tuple[str, ...]]:
    """Read the model's parameters as a struct, and the names of the context parameters."""
    title = function.__name__
    hints = _get_type_hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    contexts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(
                f"{title} takes {parameter}, which a model cannot send",
                remedy="Declare each parameter by its own name.",
            )
        hint = _convert_description(hints.get(parameter.name, Any))
        if hint is ToolContext:
            contexts.append(parameter.name)
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _copy_default(parameter.default)))
    try:
        struct = msgspec.defstruct(title, fields, kw_only=True)
        build_schema(struct)
    except TypeError as error:
        raise UsageError(
            f"a parameter of {title} has a type that JSON cannot hold: {error}"
        ) from error
    return struct, tuple(contexts)


def _get_type_hints(function: ToolFunction) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"the annotations of {function.__name__} cannot be read: {error}",
            remedy="Import the annotated types at the top of the module.",
        ) from error


def _convert_description(hint: object) -> object:
    if typing.get_origin(hint) is not Annotated:
        return hint
    inner, *notes = typing.get_args(hint)
    for note in notes:
        inner = Annotated[inner, msgspec.Meta(description=note) if isinstance(note, str) else note]
    return inner


def _copy_default(value: object) -> object:
    """Give each call its own copy of a mutable default."""
    if isinstance(value, (list, dict, set)):
        mutable = cast("list[object] | dict[object, object] | set[object]", value)
        return msgspec.field(default_factory=mutable.copy)
    return value


def _get_first_paragraph(function: ToolFunction) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def _make_run(
    function: ToolFunction, contexts: tuple[str, ...]
) -> Callable[[ToolContext, msgspec.Struct], Awaitable[ToolResult]]:
    async def run(ctx: ToolContext, arguments: msgspec.Struct) -> ToolResult:
        values = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
        return _to_result(await _call(function, **values, **dict.fromkeys(contexts, ctx)))

    return run


async def _call(function: ToolFunction, /, *args: Any, **kwargs: Any) -> object:
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    value = await asyncio.to_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _to_result(value: object) -> ToolResult:
    """Convert a function's return value. Raises TypeError for a value that cannot be JSON."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult("(no result)")
    if isinstance(value, str):
        return ToolResult(value)
    return ToolResult(msgspec.json.encode(value).decode())
