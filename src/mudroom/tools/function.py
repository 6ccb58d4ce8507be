"""Make a tool of a Python function, or of a declaration in JSON Schema."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, cast, overload

import msgspec

from .._core.ports import ToolContext
from .._core.tools import Effect, Tool, ToolResult
from ..errors import UsageError
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
    """Make a Tool of a function with type hints and a docstring.

    The function may be async; one that is not runs in a thread. It returns a str, a ToolResult, or a value that JSON can hold.
    A parameter annotated `ToolContext` is given the run's; the model does not see it. `Annotated[int, "in metres"]` says
    what a parameter means.

    Arguments:
        name: what the model calls it by; the function's name when None.
        description: what the model reads; the first paragraph of the docstring when None.
        effect: EFFECTFUL runs alone and at most once; PURE may run in parallel and again.
        needs_confirmation: a person must say yes before each call.

    Raises UsageError when a parameter cannot be told to a model.

    Example:
        @tool
        async def weather(city: str, days: int = 1) -> str:
            "The weather in a city."
    """

    def make(function: ToolFunction) -> Tool:
        arguments, contexts = _arguments(function)
        return Tool(
            name=name or function.__name__,
            description=description if description is not None else _first_paragraph(function),
            parameters=build_schema(arguments),
            parse=build_parser(arguments),
            run=_running(function, contexts),
            effect=effect,
            needs_confirmation=needs_confirmation,
        )

    return make if function is None else make(function)


def declare_tool(
    name: str,
    description: str,
    parameters: dict[str, Any],
    handler: Callable[[dict[str, Any]], Any] | None = None,
) -> Tool:
    """Make a Tool of a JSON Schema.

    Arguments:
        parameters: JSON Schema of an object; arguments are checked against it.
        handler: function of the arguments, async or not, that returns what a `tool` function may; without one a call is an
            error result that says so.

    Raises UsageError when `parameters` is not a schema.
    """
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(parameters, offline=True)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise UsageError(
            f"the parameters of tool {name!r} are not a JSON Schema: {str(error).splitlines()[0]}"
        ) from error

    def parse(given: dict[str, Any]) -> dict[str, Any]:
        for error in validator.iter_errors(given):
            place = ".".join(str(part) for part in error.instance_path) or "arguments"
            raise ValueError(f"{place}: {error.message}")
        return given

    async def run(_: ToolContext, given: dict[str, Any]) -> ToolResult:
        if handler is None:
            return ToolResult(
                f"{name} is declared, but nothing here carries it out. Do without it.", error=True
            )
        return _result(await _called(handler, given))

    return Tool(name=name, description=description, parameters=parameters, parse=parse, run=run)


def _arguments(function: ToolFunction) -> tuple[type[msgspec.Struct], tuple[str, ...]]:
    """A struct of the parameters the model gives, and the names of those that take the context."""
    title = function.__name__
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"the annotations of {title} cannot be read: {error}",
            remedy="Import what they name at the top of the module.",
        ) from error
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    contexts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(
                f"{title} takes {parameter}, which a model cannot give",
                remedy="Give every parameter a name of its own.",
            )
        hint = _with_meaning(hints.get(parameter.name, Any))
        if hint is ToolContext:
            contexts.append(parameter.name)
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    try:
        struct = msgspec.defstruct(title, fields, kw_only=True)
        build_schema(struct)
    except TypeError as error:
        raise UsageError(
            f"a parameter of {title} has a type that JSON cannot hold: {error}"
        ) from error
    return struct, tuple(contexts)


def _with_meaning(hint: Any) -> Any:
    """`Annotated[T, "what it means"]` in msgspec's words."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    inner, *notes = typing.get_args(hint)
    for note in notes:
        inner = Annotated[inner, msgspec.Meta(description=note) if isinstance(note, str) else note]
    return inner


def _default(value: Any) -> Any:
    """A mutable default belongs to one call."""
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=cast(Any, value).copy)
    return value


def _first_paragraph(function: ToolFunction) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def _running(
    function: ToolFunction, contexts: tuple[str, ...]
) -> Callable[[ToolContext, msgspec.Struct], Awaitable[ToolResult]]:
    async def run(ctx: ToolContext, arguments: msgspec.Struct) -> ToolResult:
        given = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
        return _result(await _called(function, **given, **dict.fromkeys(contexts, ctx)))

    return run


async def _called(function: ToolFunction, /, *given: Any, **named: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*given, **named)
    value = await asyncio.to_thread(function, *given, **named)
    return await value if inspect.isawaitable(value) else value


def _result(value: Any) -> ToolResult:
    """What a function gave back, for the model. Raises TypeError for what JSON cannot hold."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult("(no result)")
    return ToolResult(value if isinstance(value, str) else msgspec.json.encode(value).decode())
