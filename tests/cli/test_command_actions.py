"""Commands name their actions: each action exists, and takes what the command line gives."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mudroom._cli.commands._command_line import ALL_COMMANDS
from mudroom._cli.commands._definitions import Action


def list_calls(command: click.Command, shared: set[str], name: str) -> Iterator[tuple[str, str]]:
    """Yield each command with an action, and whether that action could not be called."""
    given = {str(parameter.name) for parameter in command.params}
    if isinstance(command, click.Group):
        for word, subcommand in command.commands.items():
            yield from list_calls(subcommand, given, f"{name} {word}")
    if isinstance(command.callback, Action):
        values = dict.fromkeys(shared | given)
        try:
            inspect.signature(command.callback.load()).bind(**values)
        except (AttributeError, ImportError, TypeError) as error:
            yield name, str(error)
        else:
            yield name, ""


CALLS = dict(call for name in ALL_COMMANDS for call in list_calls(ALL_COMMANDS[name], set(), name))


@pytest.mark.parametrize("name", CALLS)
def test_the_action_of_a_command_takes_its_parameters(name: str) -> None:
    assert not CALLS[name]


def test_nearly_all_commands_name_their_action() -> None:
    assert len(CALLS) > 50


def test_an_option_of_a_group_may_follow_the_subcommand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a" / ".claude" / "agents" / "good.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: good\ndescription: Reads well.\n---\nRead.\n")
    (tmp_path / "b").mkdir()
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    agents = ALL_COMMANDS["agents"]
    for line in (
        ["-C", a, "show", "good"],
        ["show", "good", "-C", a],
        ["-C", b, "show", "good", f"-C{a}"],
    ):
        with agents.make_context("agents", line) as context:
            assert agents.invoke(context) == 0
        assert "Reads well." in capsys.readouterr().out
