"""Options: one declaration of each, which a resume restores or not; output styles."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import FieldInfo, fields
from tests.records import read_record
from tests.session.conftest import pause_during

from mudroom import Agent, Budget, Children, Integrations, Isolation, Session, ToolResultBlock
from mudroom._adapters.journals.sqlite.folder import get_session_path
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import SessionOpened
from mudroom._session.config import SETTING_NAMES, Settings, load_settings
from mudroom._session.options import SessionOptions, SharedOptions, gather_options, list_places
from mudroom._session.recorded_options import OF_PROCESS, RESTORED, RESTORED_OTHERWISE
from mudroom.errors import SessionPaused, UnknownName, UsageError
from mudroom.permissions import Permissions
from mudroom.ports import CommandResult

from ..plugin_folder import write
from .conftest import IsolatedOptions

CODER = Agent(name="coder", description="Writes.", tools=("todo",), claims_tasks=True)
VALUES: dict[str, Any] = {
    "agent": "coder",
    "agent_files": True,
    "agents": [CODER],
    "allow_net": True,
    "auto_compact": False,
    "budget": Budget(usd=3.0),
    "check": "true",
    "check_seconds": 7,
    "child_model": {"coder": "offline"},
    "child_turns": 9,
    "clear_at": 50,
    "compact_at": 70,
    "context_window": 50_000,
    "isolate": True,
    "isolated_mb": 77,
    "max_children": 3,
    "max_output_tokens": 777,
    "max_returns": 0,
    "permissions": Permissions.of(deny=["Bash(git push:*)"]),
    "sandbox": "off",
    "takes_images": True,
    "worker": "process:1",
}
"""A value that is not the default, for each option that is restored."""


def test_each_option_says_what_becomes_of_it_after_a_resume() -> None:
    assert {*RESTORED_OTHERWISE, *OF_PROCESS} < list_places(SessionOptions).keys()
    assert VALUES.keys() == set(RESTORED)


def open_session(tmp_path: Path, **options: Any) -> Session:
    model = ScriptedModel(options.pop("answer", lambda _: "done"))  # pyright: ignore[reportUnknownLambdaType]
    options = gather_options(options, SessionOptions())
    return Session(model=model, cwd=str(tmp_path), home=str(tmp_path / "home"), **options)


async def interrupt(tmp_path: Path, **options: Any) -> str:
    """Start a session with options, and pause it while its prompt works; return its id."""
    waiting = asyncio.Event()

    async def answer(request: Request) -> Answer:
        waiting.set()
        await asyncio.sleep(60)
        return "never"

    async with open_session(tmp_path, answer=answer, **options) as session:
        await pause_during(session, session.run("P"), waiting)
    return session.id


def read_options(tmp_path: Path, session: str) -> list[dict[str, Any] | None]:
    events = read_record(tmp_path / "home", session)
    return [event.options for event in events if isinstance(event, SessionOpened)]


@pytest.mark.parametrize("name", RESTORED)
async def test_a_resumed_session_has_the_option_again(tmp_path: Path, name: str) -> None:
    options = {name: VALUES[name]}
    if name in ("agent", "child_model"):
        options["agents"] = [CODER]
    session = await interrupt(tmp_path, **options)
    async with open_session(tmp_path, resume=session) as resumed:
        assert (await resumed.run("NEXT")).ok
    first, second = read_options(tmp_path, session)
    assert first == second and first and name in first


async def test_an_option_that_is_named_wins_over_the_record(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, sandbox="off", child_turns=9, budget=Budget(usd=3.0))
    chosen = {"child_turns": 31, "sandbox": "file", "budget": Budget(usd=5.0)}
    async with open_session(tmp_path, resume=session, **chosen) as resumed:
        assert resumed.budget == Budget(usd=5.0)
        await resumed.resume_unfinished()
    assert read_options(tmp_path, session)[1] == {
        "sandbox": "file",
        "child_turns": 31,
        "budget": {"usd": 5.0},
    }


async def test_a_group_that_is_named_keeps_what_it_does_not_change(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, check="true", isolated_mb=77, child_turns=9)
    isolation = Isolation(max_mb=88)
    async with open_session(tmp_path, resume=session, isolation=isolation) as resumed:
        await resumed.resume_unfinished()
    expected = {"check": "true", "isolated_mb": 88, "child_turns": 9}
    assert read_options(tmp_path, session)[1] == expected


async def test_an_agent_that_is_given_again_replaces_the_recorded_one(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, agents=[CODER])
    newer = Agent(name="coder", description="Newer.")
    other = Agent(name="other", description="Reads.")
    async with open_session(tmp_path, resume=session, agents=[newer, other]) as resumed:
        agents = {agent.name: agent.description for agent in resumed.agents}
    assert (agents["coder"], agents["other"]) == ("Newer.", "Reads.")


async def test_a_rule_that_forbids_still_holds_and_no_file_rule_is_recorded(
    tmp_path: Path,
) -> None:
    denied = Permissions.of(deny=["Bash(echo:*)"])
    session = await interrupt(tmp_path, permissions=denied, sandbox="off")

    def answer(request: Request) -> Answer:
        return [[call("bash", command="echo x > made.txt")], "done"][request.turn]

    async with open_session(tmp_path, resume=session, answer=answer) as resumed:
        assert any("--sandbox off" in notice for notice in map(str, resumed.notices))
        await resumed.resume_unfinished()
    assert not (tmp_path / "made.txt").exists()


async def test_no_secret_is_in_the_record(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, environ={"ANTHROPIC_API_KEY": "sk-secret"}, **VALUES)
    assert b"sk-secret" not in get_session_path(tmp_path / "home", session).read_bytes()


async def test_a_program_finds_the_reports_of_what_is_done(tmp_path: Path) -> None:
    held = asyncio.Event()

    async def answer(request: Request) -> Answer:
        if request.prompt == "C":
            held.set()
            await asyncio.sleep(60)
        return f"{request.prompt} is done"

    async with open_session(tmp_path, answer=answer, resume=None) as session:
        await session.task("T", key="k")
        working = asyncio.create_task(session.map(["A", "B", "C"]))
        await held.wait()
        while len([each for each in await session.reports() if each.report]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        session.pause()
        with pytest.raises(SessionPaused):
            await working
    async with open_session(tmp_path, resume=session.id) as resumed:
        found = {each.prompt: each for each in await resumed.reports()}
        done = {name: each.report.text for name, each in found.items() if each.report}
        assert done == {name: f"{name} is done" for name in "TAB"}
        assert found["T"].key == "k" and found["C"].report is None
        await resumed.resume_unfinished()
        assert all(each.report for each in await resumed.reports())


# Programs choose whether prices are looked up; the command line always does.
SHARED = [name for name in list_places(SharedOptions) if name != "prices"]


@pytest.mark.parametrize("name", SHARED)
def test_each_shared_option_is_a_setting(name: str) -> None:
    assert name in SETTING_NAMES


@pytest.mark.parametrize("field", fields(SharedOptions), ids=lambda field: field.name)
def test_each_shared_field_is_a_parameter_of_session(field: FieldInfo) -> None:
    assert field.name in inspect.signature(Session).parameters


def test_settings_become_options(tmp_path: Path) -> None:
    values = {"child_turns": 3, "max_children": 2, "allow_net": True, "sandbox": "file"}
    settings = load_settings(cwd=str(tmp_path), environ={"HOME": str(tmp_path)}, flags=values)
    options = SessionOptions(**settings.to_options())
    assert options.children == Children(turns=3, parallel=2)
    assert (options.allow_net, options.sandbox) == (True, "file")


def test_settings_of_another_type_are_not_passed_on() -> None:
    assert "agents" not in Settings(agents="{}").to_options()


@pytest.mark.parametrize("name", ["MUDROOM_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_OUTPUT_TOKENS"])
def test_the_output_limit_may_come_from_a_variable(name: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), name: "500"}
    settings = load_settings(cwd=str(tmp_path), environ=environ, flags={})
    assert SessionOptions(**settings.to_options()).model_options.max_output_tokens == 500


@pytest.mark.parametrize(
    "name", [name for name, place in list_places(SessionOptions).items() if place.group]
)
def test_a_flat_name_still_works_and_names_the_group(name: str) -> None:
    place = list_places(SessionOptions)[name]
    value = place.read(SessionOptions())
    with pytest.warns(
        DeprecationWarning, match=rf"{place.group}={place.owner.__name__}\({place.field.name}="
    ):
        Session(**{name: value})


def test_a_flat_name_changes_the_group_that_is_given() -> None:
    options: dict[str, Any] = {"isolation": Isolation(check="make test"), "isolate": True}
    with pytest.warns(DeprecationWarning):
        session = Session(**options)
    assert session._options.isolation == Isolation(each_child=True, check="make test")


@pytest.mark.parametrize("value", [5, None, {"turns": 3}, Isolation()])
def test_a_group_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="children of SessionOptions must be Children, not"):
        Session(children=value)


class RecordingSandbox:
    tier = "off"

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.is_closed = False

    async def run(self, command: str, *, timeout: float, sink: object) -> CommandResult:
        self.commands.append(command)
        return CommandResult(0)

    def close(self) -> None:
        self.is_closed = True


async def test_sandbox_of_the_caller_runs_the_commands(isolated: IsolatedOptions) -> None:
    sandbox = RecordingSandbox()
    model = ScriptedModel([[call("bash", command="echo hello")], "done"])
    cwd = isolated["cwd"]
    async with Session(model=model, cwd=cwd, journal="memory", sandbox=sandbox) as session:
        await session.run("go")
    assert sandbox.commands == ["echo hello"]
    assert sandbox.is_closed


def count_letters(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


async def test_a_plain_function_is_a_tool(isolated: IsolatedOptions) -> None:
    model = ScriptedModel([[call("count_letters", word="mud")], "done"])
    async with Session(model=model, **isolated, tools=[count_letters]) as session:
        await session.run("go")
    (result,) = model.requests[-1].messages[-1].content
    assert isinstance(result, ToolResultBlock)
    assert (result.text, result.error) == ("3", False)


async def test_a_function_that_cannot_be_a_tool_is_refused(isolated: IsolatedOptions) -> None:
    with pytest.raises(UsageError, match="print"):
        async with Session(model="offline", **isolated, tools=[print]):
            pass


def test_run_sync_has_the_options_of_a_session() -> None:
    prompt, *options = inspect.signature(Session.run_sync).parameters.values()
    assert prompt.name == "prompt"
    assert options == list(inspect.signature(Session).parameters.values())


STYLE = "Answer as a limerick."


@pytest.fixture
def options(isolated: IsolatedOptions) -> dict[str, Any]:
    folder = Path(isolated["cwd"])
    write(folder / ".claude/output-styles/limerick.md", STYLE)
    write(folder / ".claude/output-styles/terse.md", "Be terse.")
    return {**isolated, "integrations": Integrations(agent_files=True)}


def choose_style(name: str, *, agent_files: bool = True, origin: str = "") -> dict[str, Any]:
    """Return the options of a session with a style, which a file may name."""
    origins = {"output_style": origin} if origin else {}
    return {
        "integrations": Integrations(agent_files=agent_files, output_style=name, origins=origins)
    }


def make_model() -> ScriptedModel:
    return ScriptedModel(lambda _: "Done.")


async def run_once(options: dict[str, Any], **more: Any) -> tuple[Request, Session]:
    """Run one prompt; return its request, and the closed session."""
    model = make_model()
    async with Session(model=model, **{**options, **more}) as session:
        assert not model.requests, "a style costs no request"
        await session.run("Hello")
    assert len(model.requests) == 1
    return model.requests[0], session


async def test_children_never_see_the_style(options: dict[str, Any]) -> None:
    def script(request: Request) -> Any:
        if "DELEGATE" in str(request.messages[-1]):
            return [call("task", agent="general", prompt="Look.", description="d")]
        return "Done."

    without, styled = ScriptedModel(script), ScriptedModel(script)
    async with Session(model=without, **options) as session:
        await session.run("DELEGATE")
        await session.task("Look.")
    async with Session(model=styled, **{**options, **choose_style("limerick")}) as session:
        assert session.output_style == "limerick"
        await session.run("DELEGATE")
        await session.task("Look.")
        assert not any(STYLE in agent.instructions for agent in session.agents)
    pairs = [(a.system, b.system) for a, b in zip(without.requests, styled.requests, strict=True)]
    assert len(pairs) == 4  # root, child, root, task
    assert [STYLE in b for _, b in pairs] == [True, False, True, False]
    assert all(a == b for a, b in (pairs[1], pairs[3])), "the bytes of a child are the same"


async def test_an_unknown_style_has_the_nearest_name(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownName, match=r"unknown output style 'limeric'.*mean limerick\?"):
        await run_once(options, **choose_style("limeric"))
    with pytest.raises(UnknownName, match="agent_files=True"):
        await run_once(options, **choose_style("limerick", agent_files=False))


async def test_an_unknown_style_of_a_settings_file_is_a_notice(options: dict[str, Any]) -> None:
    origin = "config.toml:3"
    request, session = await run_once(options, **choose_style("gone", origin=origin))
    assert "Output style" not in request.system
    notices = [line for line in map(str, session.notices) if "style" in line]
    assert len(notices) == 1
    assert notices[0].startswith("config.toml:3: output style not used: unknown output style")


async def test_a_resume_keeps_the_style(options: dict[str, Any]) -> None:
    _, first = await run_once(options, **choose_style("limerick"))
    resumed, _ = await run_once(options, resume=first.id)
    assert STYLE in resumed.system
    of_file = choose_style("terse", origin="config.toml:3")
    assert STYLE in (await run_once(options, resume=first.id, **of_file))[0].system
    forked, _ = await run_once(options, resume=first.id, fork=True)
    assert STYLE in forked.system
    changed, _ = await run_once(options, resume=first.id, **choose_style("terse"))
    assert STYLE not in changed.system and "Be terse." in changed.system
    again, _ = await run_once(options, resume=first.id)
    assert "Be terse." in again.system
    none, _ = await run_once(options, resume=first.id, **choose_style("default"))
    assert "Output style" not in none.system
    still_none, _ = await run_once(options, resume=first.id, **of_file)
    assert "Output style" not in still_none.system


async def test_a_recorded_style_whose_file_is_gone_is_a_notice(options: dict[str, Any]) -> None:
    _, first = await run_once(options, **choose_style("limerick"))
    path = Path(options["cwd"], ".claude/output-styles/limerick.md")
    path.unlink()
    request, session = await run_once(options, resume=first.id)
    assert "Output style" not in request.system
    assert any(
        "the record of this session: output style not used" in n for n in map(str, session.notices)
    )
    path.write_text(STYLE)
    assert STYLE in (await run_once(options, resume=first.id))[0].system


async def test_a_style_of_the_project_is_said(options: dict[str, Any]) -> None:
    _, session = await run_once(options, **choose_style("limerick"))
    assert any(
        line.startswith("using the output style limerick: ") for line in map(str, session.notices)
    )
