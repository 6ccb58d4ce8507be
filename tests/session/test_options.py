"""One declaration of each option: settings have flat names, `Session(...)` has groups."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import FieldInfo, fields

from mudroom import Children, Isolation, Session, SessionOptions
from mudroom._core.messages import ToolResultBlock
from mudroom._session.config import SETTING_NAMES, Settings, load_settings
from mudroom._session.options import SharedOptions, list_places
from mudroom.errors import UsageError
from mudroom.ports import CommandResult
from mudroom.testing import ScriptedModel, call

from .conftest import IsolatedOptions

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
    """Notes commands instead of running them."""

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
