"""Mistakes of the caller are raised with a remedy; failures of models are reported."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mudroom
import mudroom.scope
from mudroom import (
    Agent,
    Budget,
    JournalError,
    MudroomError,
    Permissions,
    Reason,
    Session,
    SessionOptions,
    Tool,
    ToolResult,
    tool,
)
from mudroom._session.config import find_home
from mudroom._session.options import gather_options, list_places
from mudroom.errors import ModelRefused, UnknownName, UsageError
from mudroom.scope import PromptConfig, RunConfig
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel

from ..worker_kinds import WORKERS
from .conftest import IsolatedOptions

Call = Callable[[Session], Awaitable[object]]

MISTYPED_MODEL = Agent(name="reader", model="antropic:x")
MISTAKES: dict[str, tuple[Call, str | None]] = {
    "run, empty prompt": (lambda session: session.run(" \n"), "empty"),
    "task, empty prompt": (lambda session: session.task(""), "empty"),
    "map, empty prompt": (lambda session: session.map(["one", ""]), r"empty \(prompt 2\)"),
    "task, unknown agent": (lambda s: s.task("a", agent="exploer"), "Did you mean explore"),
    "map, one text": (lambda session: session.map("one"), None),
    "map, wrong outputs": (lambda session: session.map(["a"], outputs={"a": 1}), None),
    "map, no slot": (lambda session: session.map(["a"], parallel=0), None),
    "map, unknown agent": (lambda session: session.map(["a", "b"], agent="exploer"), "explore"),
    "map, no prompt": (lambda session: session.map([], agent="exploer"), "explore"),
    "map, unknown model": (
        lambda session: session.map(["a", "b"], agent=MISTYPED_MODEL),
        "Did you mean anthropic",
    ),
    "task, unknown model": (lambda s: s.task("a", model="antropic:x"), "Did you mean anthropic"),
    "task, blank model": (lambda session: session.task("a", model=""), "unknown model ''"),
    "task, no key": (lambda s: s.task("a", model="anthropic:claude"), "ANTHROPIC_API_KEY"),
    "scope, no prompt": (lambda session: session.scope("a", PromptConfig()), None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_mistakes_of_the_caller_raise_usage_error_before_any_model_call(
    mistake: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(lambda request: "never")
    async with Session(model=model, journal="memory", **isolated) as session:
        make, message = MISTAKES[mistake]
        with pytest.raises(UsageError, match=message):
            await make(session)
    assert not model.requests


async def test_unknown_names_have_their_own_error(isolated: IsolatedOptions) -> None:
    unknown: dict[str, Call] = {
        "Did you mean explore": lambda session: session.task("a", agent="exploer"),
        "Did you mean anthropic": lambda session: session.task("a", model="antropic:x"),
        "unknown model ''": lambda session: session.task("a", model=""),
    }
    async with Session(model="offline", journal="memory", **isolated) as session:
        for message, make in unknown.items():
            with pytest.raises(UnknownName, match=message):
                await make(session)
    with pytest.raises(UnknownName, match="Did you mean anthropic"):
        async with Session(model="antropic:claude", journal="memory", **isolated):
            pass


async def test_model_failures_are_reasons_everywhere(isolated: IsolatedOptions) -> None:
    def refuse(request: Request) -> Answer:
        return ModelRefused("no such model")

    async with Session(model=ScriptedModel(refuse), journal="memory", **isolated) as session:
        report = await session.run("a")
        task = await session.task("a")
        (mapped,) = await session.map(["a"])
        prompt = PromptConfig(system_prompt="Work.")
        output = await session.scope("worker", prompt, run_config=RunConfig(max_turns=2))
    assert {report.reason, task.reason, mapped.reason, output.terminate_reason} == {Reason.ERROR}
    assert output.report and "no such model" in output.report.error


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("kind", [ValueError, MudroomError, UsageError])
async def test_map_keeps_finished_reports_when_one_task_has_a_fault(
    kind: type[Exception], worker: str, isolated: IsolatedOptions
) -> None:
    async def answer(request: Request) -> str:
        if request.prompt == "bad":
            raise kind("fault of an adapter")
        await asyncio.sleep(0.02)
        return f"did {request.prompt}"

    model = ScriptedModel(answer)
    async with Session(model=model, journal="memory", worker=worker, **isolated) as session:
        reports = await session.map(["one", "bad", "two"])
    assert [report.text for report in reports] == ["did one", "", "did two"]
    assert reports[1].reason is Reason.ERROR
    assert reports[1].run_id == "2"
    assert "fault of an adapter" in reports[1].error


async def test_map_raises_a_journal_error_itself(isolated: IsolatedOptions) -> None:
    with pytest.raises(JournalError):
        async with Session(
            model=ScriptedModel(lambda request: "hi"), journal=MemoryJournal(capacity=4), **isolated
        ) as session:
            await session.map(["one", "two", "three"])


PLACES = list_places(SessionOptions)
TEXT_OPTIONS = [name for name, place in PLACES.items() if isinstance(place.field.default, str)]


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("name", TEXT_OPTIONS)
def test_a_blank_option_is_refused(name: str, blank: str) -> None:
    place = PLACES[name]
    if blank == place.field.default:
        return  # "" is the default
    where = place.owner.__name__ if place.group else "Session"
    options = gather_options({name: blank}, SessionOptions())
    with pytest.raises(UsageError, match=rf"^{place.field.name} is blank \({where}\)\. Leave it"):
        Session(**options)


def test_an_unknown_journal_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown journal 'sqlit'.*Did you mean sqlite"):
        Session(journal="sqlit")


def test_a_blank_home_variable_is_refused() -> None:
    with pytest.raises(UsageError, match=r"it is blank \(\$MUDROOM_HOME\). Name a folder"):
        find_home({"MUDROOM_HOME": " "})


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
    with pytest.raises(TypeError, match="Missing required argument"):
        Tool()  # pyright: ignore[reportCallIssue]
    with pytest.raises(UnknownName, match=r"unknown option 'nosuch' \(Session\)\. Known: agent, "):
        Session(nosuch=1)  # pyright: ignore[reportCallIssue]


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
    *(("max_output_tokens", value) for value in (0, -1, True)),
]
AGENT_FIELDS: list[tuple[str, Any]] = [
    *((name, 5) for name in ("name", "description", "instructions", "model", "budget")),
    *((name, 5) for name in ("describes_environment", "context_files")),
    *((name, "x") for name in ("temperature", "top_p", "max_output_tokens")),
    *((name, (None,)) for name in ("tools", "children", "child_tools")),
    *((name, "read") for name in ("tools", "children", "child_tools")),
    ("outputs", {"a": 5}),
    ("mode", "plan"),
    ("name", " "),
    ("context_files", "ful"),
    *(("max_output_tokens", value) for value in (0, -1, True)),
    *((name, value) for name in ("temperature", "top_p") for value in (-1, 2.5, float("nan"))),
    ("workspace", "copy"),
]
TOOL_FIELDS: list[tuple[str, Any]] = [
    *((name, 5) for name in ("name", "description", "parameters", "parse", "run", "get_key")),
    *((name, 5) for name in ("argument_aliases", "needs_confirmation", "make_reminder")),
    *((name, 5) for name in ("path_argument", "preview")),
    *((name, "pure") for name in ("effect", "category", "view", "preview_lines")),
]
CALLS: dict[str, Callable[[Session], Any]] = {
    "task agent": lambda session: session.task("a", agent=5),  # pyright: ignore
    "task deep agent": lambda session: session.task("a", agent=DEEP),  # pyright: ignore
    "task long agent": lambda session: session.task("a", agent="x" * 1_000_000),
    "task budget": lambda session: session.task("a", budget="x"),  # pyright: ignore
    "task model": lambda session: session.task("a", model=[]),  # pyright: ignore
    "task long model": lambda session: session.task("a", model="openai:" + "x" * 1_000_000),
    "task description": lambda session: session.task("a", description=5),  # pyright: ignore
    "task outputs": lambda session: session.task("a", outputs=5),  # pyright: ignore
    "task deep outputs": lambda session: session.task("a", outputs={"a": DEEP}),
    "map prompts": lambda session: session.map(None),  # pyright: ignore
    "map prompt": lambda session: session.map([None]),  # pyright: ignore
    "map agent": lambda session: session.map(["a"], agent=None),  # pyright: ignore
    "map budget": lambda session: session.map(["a"], budget=5),  # pyright: ignore
    "map parallel": lambda session: session.map(["a"], parallel=DEEP),  # pyright: ignore
    "map many": lambda session: session.map(["a"], parallel=10**5_000),
    "run": lambda session: session.run(5),  # pyright: ignore
    "budget": lambda session: setattr(session, "budget", 5),
    "watch": lambda session: session.watch(5),  # pyright: ignore
    "compact": lambda session: session.compact(5),  # pyright: ignore
    "send": lambda session: session.runs.send("1", 5),  # pyright: ignore
    "send durably": lambda session: session.runs.send_durably([], "a"),  # pyright: ignore
    "cancel": lambda session: session.runs.cancel([]),  # pyright: ignore
    "wrap up": lambda session: session.runs.wrap_up(5),  # pyright: ignore
    "rewind": lambda session: session.rewind(DEEP),  # pyright: ignore
    "resume": lambda session: session.resume_unfinished(outputs=5),  # pyright: ignore
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
    with pytest.raises(UsageError, match=f"{name}.*( must be|is blank)"):
        await session.task("Read it.", agent=Agent(**values))


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cwd": "/nowhere/at/all"}, "no such directory"),
        ({"model": "antropic:claude"}, "Did you mean anthropic"),
        ({"model": "anthropic:claude-sonnet-4-5"}, "ANTHROPIC_API_KEY"),
    ],
)
async def test_a_session_that_cannot_work_does_not_open(
    options: dict[str, Any], message: str, isolated: IsolatedOptions
) -> None:
    values: dict[str, Any] = {**isolated, "model": ScriptedModel([]), "journal": "memory"}
    with pytest.raises(UsageError, match=message):
        async with Session(**(values | options)):
            pass
