"""Wrong names of arguments: the error names the class, the nearest name, or all names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import mudroom
import mudroom.scope
from mudroom import Agent, Budget, Permissions, Session, SessionOptions, Tool, ToolResult
from mudroom.errors import UnknownName

CONSTRUCTED = [
    *(getattr(mudroom, name) for name in ("Agent", "Output", "Budget", "Permissions", "Tool")),
    *(getattr(mudroom, name) for name in ("ToolResult", "ApprovalDecision", "SessionOptions")),
    *(getattr(mudroom, name) for name in ("ImageBlock", "UserMessage")),
    *(
        value
        for name in mudroom.scope.__all__
        if inspect.isclass(value := getattr(mudroom.scope, name))
        and issubclass(value, msgspec.Struct)
    ),
]


@pytest.mark.parametrize("kind", CONSTRUCTED, ids=lambda kind: kind.__name__)
def test_every_struct_that_programs_construct_names_its_fields(kind: type) -> None:
    with pytest.raises(UnknownName, match=f"unknown argument 'zzzzzz' \\({kind.__name__}\\)"):
        kind(zzzzzz=1)


def test_the_nearest_name_is_suggested() -> None:
    cases: list[tuple[Callable[..., object], dict[str, Any], str]] = [
        (Agent, {"nme": "x", "description": "d"}, "name"),
        (Budget, {"turn": 3}, "turns"),
        (Permissions, {"rule": ()}, "rules"),
        (SessionOptions, {"modle": "offline"}, "model"),
        (ToolResult, {"erorr": ""}, "error"),
        (Session, {"budgt": Budget()}, "budget"),
    ]
    for kind, fields, nearest in cases:
        with pytest.raises(UnknownName) as raised:
            kind(**fields)
        assert raised.value.remedy == f"Did you mean {nearest}?", kind
    with pytest.raises(UnknownName, match=r"unknown option 'nosuch' \(Session\)\. Known: agent, "):
        Session(nosuch=1)  # pyright: ignore[reportCallIssue]


def test_missing_and_wrong_arguments_and_stored_forms_are_as_before() -> None:
    with pytest.raises(TypeError, match="Missing required argument"):
        Tool()  # pyright: ignore[reportCallIssue]
    budget = Budget(turns=3)
    assert msgspec.json.decode(msgspec.json.encode(budget), type=Budget) == budget
    assert msgspec.structs.replace(budget, turns=4) == Budget(turns=4)
