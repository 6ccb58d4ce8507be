"""The todo tool: checks of the list, and the reminder."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tools.conftest import Call, Run

from mudroom._adapters.tools.todo import TODO

PLAN = [
    {"content": "look", "status": "completed"},
    {"content": "write", "status": "in_progress"},
    {"content": "test", "status": "pending"},
]


async def test_the_list_comes_back_with_its_state(call: Call) -> None:
    result = await call("todo", todos=PLAN)
    assert result.text == "[x] look\n[>] write\n[ ] test\n(1/3 completed)"
    assert result.display == "1/3 write"
    assert (await call("todo", todos=[])).text == "(no todos)"


async def test_other_spellings_of_an_item(call: Call) -> None:
    items = [
        {"id": "1", "text": "look", "status": "pending"},
        {"content": "go", "status": "in_progress", "activeForm": "Going", "priority": "high"},
    ]
    assert (await call("todo", items=items)).text == "[ ] look\n[>] go\n(0/2 completed)"


@pytest.mark.parametrize(
    ("todos", "expected"),
    [
        ([{"content": "a", "status": "in_progress"}] * 2, "more than one is in_progress"),
        ([{"content": "a", "status": "pending"}] * 21, "has 21 items; combine some, 20 at most"),
        ([{"content": " ", "status": "pending"}], "todos[0].content: is empty"),
        ([{"content": "a", "status": "odd"}], "todos[0].status: invalid enum value 'odd'"),
        (["a"], "todos[0]: is string; expected object"),
    ],
)
async def test_a_bad_list_is_refused(ctx: Run, call: Call, todos: list[Any], expected: str) -> None:
    result = await call("todo", todos=todos)
    assert result.error
    assert expected in result.text
    assert "todo" not in ctx.memo


async def test_a_reminder_comes_every_third_turn(ctx: Run, call: Call) -> None:
    assert TODO.make_reminder is not None
    assert TODO.make_reminder(ctx) is None
    await call("todo", todos=PLAN)
    expected: list[int] = []
    for ctx.turn in range(1, 11):
        if TODO.make_reminder(ctx):
            expected.append(ctx.turn)
    assert expected == [4, 7, 10]
    ctx.turn = 11
    await call("todo", todos=PLAN)
    ctx.turn = 13
    assert TODO.make_reminder(ctx) is None


async def test_a_finished_list_needs_no_reminder(ctx: Run, call: Call) -> None:
    await call("todo", todos=PLAN[:1])
    ctx.turn = 9
    assert TODO.make_reminder is not None and TODO.make_reminder(ctx) is None
