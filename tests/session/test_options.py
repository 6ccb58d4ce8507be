"""One struct of options: settings, `Session(...)` and the builder use the same names."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from msgspec.structs import fields

from mudroom import Session, SessionOptions
from mudroom._session.config import SETTING_NAMES, Settings, load_settings
from mudroom._session.options import SharedOptions
from mudroom.errors import UnknownName
from mudroom.ports import CommandResult
from mudroom.testing import ScriptedModel, call

from .conftest import IsolatedOptions

SHARED = [field.name for field in fields(SharedOptions)]


@pytest.mark.parametrize("name", SHARED)
def test_shared_option_is_a_setting_and_a_parameter_of_session(name: str) -> None:
    assert name in SETTING_NAMES
    assert name in inspect.signature(Session).parameters


def test_settings_become_options_of_the_same_name(tmp_path: Path) -> None:
    values = {"child_turns": 3, "max_children": 2, "allow_net": True, "sandbox": "file"}
    settings = load_settings(cwd=str(tmp_path), environ={"HOME": str(tmp_path)}, flags=values)
    options = SessionOptions(**settings.to_options())
    for name, value in values.items():
        assert getattr(options, name) == value


def test_settings_of_another_type_are_not_passed_on() -> None:
    assert "agents" not in Settings(agents="{}").to_options()


@pytest.mark.parametrize("name", ["MUDROOM_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_OUTPUT_TOKENS"])
def test_the_output_limit_may_come_from_a_variable(name: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), name: "500"}
    settings = load_settings(cwd=str(tmp_path), environ=environ, flags={})
    assert SessionOptions(**settings.to_options()).max_output_tokens == 500


def test_unknown_option_is_refused() -> None:
    with pytest.raises(UnknownName, match="netwrk"):
        Session(netwrk=True)  # pyright: ignore[reportCallIssue]


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


def test_run_sync_has_the_options_of_a_session() -> None:
    prompt, *options = inspect.signature(Session.run_sync).parameters.values()
    assert prompt.name == "prompt"
    assert options == list(inspect.signature(Session).parameters.values())
