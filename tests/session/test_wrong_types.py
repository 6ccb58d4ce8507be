"""Values of wrong Python types at the entry points of the library: a UsageError, no other error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent, Budget, Session, SessionOptions, Tool, ToolResult, tool
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._session.options import gather_options, list_places
from mudroom.errors import UsageError


def nest(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


DEEP = nest(10_000)
OPTIONS: list[tuple[str, Any]] = [
    *(("model", value) for value in (5, ["offline"], None)),
    *(("cwd", value) for value in (5, None, b"x")),
    *(("budget", value) for value in (5, None)),
    *(("tools", value) for value in (5, [None], "read", [5])),
    *(("agents", value) for value in ([5], {"a": 1})),
    *(("approver", value) for value in (5, print)),
    *(("permissions", value) for value in (5, "plan")),
    *(("environ", value) for value in (5, {"A": 5})),
    *(("id", value) for value in (5, "zz")),
    *(("worker", value) for value in (5, DEEP)),
    *(("child_turns", value) for value in ("x", DEEP)),
    *((name, 5) for name in ("agent", "journal", "store", "hooks", "sandbox")),
    *((name, 5) for name in ("resume", "home", "child_model", "fallback_model", "fork")),
    *((name, "no") for name in ("prices", "allow_net", "trusted", "agent_files")),
    ("tool_sources", [5]),
    ("prompt_budget", 5),
]
AGENT_FIELDS: list[tuple[str, Any]] = [
    *((name, 5) for name in ("name", "description", "instructions", "model", "budget")),
    *((name, 5) for name in ("describes_environment", "context_files")),
    *((name, "x") for name in ("temperature", "top_p", "max_output_tokens")),
    *((name, (None,)) for name in ("tools", "children", "child_tools")),
    *((name, "read") for name in ("tools", "children", "child_tools")),
    ("outputs", {"a": 5}),
    ("mode", "plan"),
    ("workspace", "copy"),
]
TOOL_FIELDS: list[tuple[str, Any]] = [
    *((name, 5) for name in ("name", "description", "parameters", "parse", "run", "get_key")),
    *((name, 5) for name in ("argument_aliases", "needs_confirmation", "make_reminder")),
    *((name, 5) for name in ("path_argument", "preview")),
    *((name, "pure") for name in ("effect", "category", "view", "preview_lines")),
]
Call = Callable[[Session], Any]
CALLS: dict[str, Call] = {
    "task agent": lambda session: session.task("a", agent=5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "task deep agent": lambda session: session.task("a", agent=DEEP),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "task long agent": lambda session: session.task("a", agent="x" * 1_000_000),
    "task budget": lambda session: session.task("a", budget="x"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "task model": lambda session: session.task("a", model=[]),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "task long model": lambda session: session.task("a", model="openai:" + "x" * 1_000_000),
    "task description": lambda session: session.task("a", description=5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "task outputs": lambda session: session.task("a", outputs=5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "task deep outputs": lambda session: session.task("a", outputs={"a": DEEP}),
    "map prompts": lambda session: session.map(None),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "map prompt": lambda session: session.map([None]),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    "map agent": lambda session: session.map(["a"], agent=None),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "map budget": lambda session: session.map(["a"], budget=5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "map parallel": lambda session: session.map(["a"], parallel=DEEP),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "map many": lambda session: session.map(["a"], parallel=10**5_000),
    "run": lambda session: session.run(5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "budget": lambda session: setattr(session, "budget", 5),
    "watch": lambda session: session.watch(5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "compact": lambda session: session.compact(5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "send": lambda session: session.runs.send("1", 5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "send durably": lambda session: session.runs.send_durably([], "a"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "cancel": lambda session: session.runs.cancel([]),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "wrap up": lambda session: session.runs.wrap_up(5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "rewind": lambda session: session.rewind(DEEP),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "resume": lambda session: session.resume_unfinished(outputs=5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
}


def open_session(folder: Path, **options: Any) -> Session:
    values: dict[str, Any] = {
        "model": ScriptedModel([]),
        "home": str(folder),
        "journal": "memory",
        "environ": {},
        "sandbox": "off",
        **options,
    }
    return Session(**values)


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    async with open_session(tmp_path) as opened:
        yield opened


async def run(_: object, arguments: object) -> ToolResult:
    return ToolResult("done")


@pytest.mark.parametrize(("name", "value"), OPTIONS)
def test_an_option_of_a_wrong_type_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    field = list_places(SessionOptions)[name].field.name
    with pytest.raises(UsageError, match=field) as error:
        open_session(tmp_path, **gather_options({name: value}, SessionOptions()))
    assert error.value.remedy


@pytest.mark.parametrize(("name", "value"), AGENT_FIELDS)
async def test_an_agent_with_a_field_of_a_wrong_type_is_refused(
    name: str, value: Any, session: Session
) -> None:
    values: dict[str, Any] = {"name": "reader", name: value}
    with pytest.raises(UsageError, match=f"{name}.* must be"):
        await session.task("Read it.", agent=Agent(**values))


@pytest.mark.parametrize("name", ["temperature", "top_p"])
@pytest.mark.parametrize("amount", [-1, 2.5, float("nan")])
def test_a_sampling_value_out_of_range_is_refused(name: str, amount: float) -> None:
    values: dict[str, Any] = {"name": "reader", name: amount}
    with pytest.raises(UsageError, match=f"{name} must be a finite number from 0 to"):
        Agent(**values)


@pytest.mark.parametrize(("name", "value"), TOOL_FIELDS)
def test_a_tool_with_a_field_of_a_wrong_type_is_refused(
    name: str, value: Any, tmp_path: Path
) -> None:
    values: dict[str, Any] = {
        "name": "probe",
        "description": "A tool.",
        "parameters": {"type": "object"},
        "parse": dict,
        "run": run,
        name: value,
    }
    with pytest.raises(UsageError, match=f"{name} of Tool.* must be"):
        open_session(tmp_path, tools=[Tool(**values)])


@pytest.mark.parametrize("value", [5, DEEP])
def test_a_tool_is_made_only_from_a_function(value: Any) -> None:
    with pytest.raises(UsageError, match="is not a function with a name"):
        tool(value)


@pytest.mark.parametrize("name", CALLS)
async def test_an_argument_of_a_wrong_type_is_refused(name: str, session: Session) -> None:
    with pytest.raises(UsageError) as error:
        await CALLS[name](session)
    assert len(str(error.value)) < 5_000


@pytest.mark.parametrize("amount", ["x", DEEP, 10**5_000, True], ids=type)
def test_a_limit_that_is_no_amount_is_refused(amount: Any) -> None:
    with pytest.raises(UsageError, match="turns must be a whole number") as error:
        Budget(turns=amount)
    assert "no limit" in error.value.remedy


def test_a_long_error_keeps_its_ends_and_its_remedy() -> None:
    error = UsageError("a" + "x" * 1_000_000 + "b", where="y" * 1_000_000, remedy="Do it.")
    assert len(str(error)) < 10_000
    assert error.message.startswith("ax")
    assert error.message.endswith("xb")
    assert str(error).endswith("Do it.")
