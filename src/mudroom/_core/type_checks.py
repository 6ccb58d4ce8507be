"""Checks values from callers against the type hints of the parameters they are passed for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)
from typing import get_type_hints as read_hints

from msgspec import NODEFAULT, Struct, StructMeta

from ..errors import UnknownName, UsageError, quote_value

_CONTAINERS: dict[object, type | tuple[type, ...]] = {
    Sequence: Sequence,
    tuple: (tuple, list),
    list: (tuple, list),
    Mapping: Mapping,
    dict: Mapping,
}
_get_hints = cache(read_hints)


def check_type(name: str, value: object, hint: object, where: str = "") -> None:
    if problem := _find_misfit(name, value, hint):
        remedy = "Pass a value of that type."
        if re.search(r"\bTool\b", problem.partition(" must be ")[2]):
            remedy = "Make a Tool from a function with the decorator `tool`."
        raise UsageError(problem, where=where, remedy=remedy)


def _find_misfit(name: str, value: object, hint: object) -> str:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if hint is Any or isinstance(hint, TypeVar) or origin is type:
        return ""  # `list[int]` is also a type; the function that reads the type checks it
    if origin is Annotated:
        return _find_misfit(name, value, arguments[0])
    if origin in (Union, UnionType):
        problems = [_find_misfit(name, value, choice) for choice in arguments]
        # A misfit inside one of the choices says more than "must be A or B".
        inner = [problem for problem in problems if not problem.startswith(f"{name} must")]
        return (inner[0] if inner else _describe(name, value, hint)) if all(problems) else ""
    if origin is Literal:
        return "" if value in arguments else _describe(name, value, hint)
    if not _is_instance(value, origin or hint):
        return _describe(name, value, hint)
    for item_name, item, item_hint in _list_parts(name, value, origin or hint, arguments):
        if problem := _find_misfit(item_name, item, item_hint):
            return problem
    return ""


def _is_instance(value: object, kind: object) -> bool:
    if kind is Callable:
        return callable(value)
    if kind is int or kind is float:
        number = int if kind is int else (int, float)
        return isinstance(value, number) and not isinstance(value, bool)
    if getattr(kind, "_is_protocol", False) and kind not in _CONTAINERS:
        members = (member for member in dir(kind) if not member.startswith("_"))
        return all(hasattr(value, member) for member in members)
    if kind is Sequence and isinstance(value, str | bytes):
        return False
    return isinstance(value, _CONTAINERS.get(kind, cast("type", kind)))


def _list_parts(
    name: str, value: object, kind: object, arguments: tuple[Any, ...]
) -> Iterable[tuple[str, object, Any]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        title = getattr(value, "name", "")
        place = kind.__name__
        if isinstance(title, str) and title:
            place += f" {quote_value(title)}"
        hints = _get_hints(kind)
        defaults = zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False)
        by_name = dict(defaults)
        for field in kind.__struct_fields__:
            part = getattr(value, field)
            # Defaults fit by construction, and most fields have theirs.
            if part is not by_name.get(field, NODEFAULT):
                yield f"{field} of {place}", part, hints[field]
    elif isinstance(value, Mapping) and arguments:
        for key, item in cast("Mapping[object, object]", value).items():
            yield f"a key of {name}", key, arguments[0]
            yield f"{quote_value(key)} in {name}", item, arguments[1]
    elif isinstance(value, Sequence) and arguments:
        for number, item in enumerate(cast("Sequence[object]", value), 1):
            yield f"item {number} of {name}", item, arguments[0]


def _describe(name: str, value: object, hint: object) -> str:
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = " or ".join(map(_name_hint, parts))
    return f"{name} must be {kinds}, not {_name_hint(type(value))}"


def _name_hint(hint: object) -> str:
    if hint is NoneType:
        return "None"
    return re.sub(r"(?<!\w)\w++\.", "", hint.__name__ if isinstance(hint, type) else repr(hint))


class NamedFields(StructMeta):
    """Metaclass of structs whose constructor names an unknown argument and the nearest one."""

    if not TYPE_CHECKING:  # Type checkers read the fields of the struct.

        def __call__(cls, *values: object, **fields: object) -> object:
            try:
                return super().__call__(*values, **fields)
            except TypeError:
                known = cls.__struct_fields__
                unknown = next((name for name in fields if name not in known), None)
                if unknown is None:
                    raise
                raise UnknownName("argument", unknown, known, where=cls.__name__) from None
