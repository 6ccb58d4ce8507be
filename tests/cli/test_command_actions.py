"""Commands name their actions: each action exists, and takes what the command line gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[dict[str, object]] = []

    def record(**values: object) -> None:
        called.append(values)

    def load(_: Action) -> Callable[..., None]:
        return record

    monkeypatch.setattr(Action, "load", load)
    agents = ALL_COMMANDS["agents"]
    for line in (
        ["-C", "a", "show", "x"],
        ["show", "x", "-C", "a"],
        ["-C", "b", "show", "x", "-Ca"],
    ):
        with agents.make_context("agents", line) as context:
            assert agents.invoke(context) == 0
    assert called == [{"cwd": "a", "name": "x"}] * 3
