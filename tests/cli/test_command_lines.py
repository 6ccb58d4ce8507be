"""Every command of the command line: its action, and blank texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mudroom._cli.commands._command_line import ALL_COMMANDS
from mudroom._cli.commands._definitions import Action
from mudroom._cli.commands.root import root_command
from mudroom._cli.main import run

ACCEPT_BLANK = {
    ("mudroom", "words"): "a blank prompt has its own message",
    ("mudroom", "print_prompt"): "a blank prompt has its own message",
    ("rename", "name"): "a blank name removes the name",
    ("config set", "value"): "a blank value removes the setting",
    ("mcp add", "arguments"): "the program may need a blank argument",
}


def list_texts(
    command: click.Command, name: str
) -> Iterator[tuple[str, click.Command, click.Parameter]]:
    """Yield the command and its subcommands with each parameter that takes a text."""
    for parameter in command.params:
        is_flag = isinstance(parameter, click.Option) and parameter.is_flag
        if not is_flag and parameter.type.name == "text" and not parameter.is_eager:
            yield name, command, parameter
    if isinstance(command, click.Group):
        for word, subcommand in command.commands.items():
            yield from list_texts(subcommand, f"{name} {word}")


TEXTS = [
    text
    for name, command in {"mudroom": root_command, **ALL_COMMANDS}.items()
    for text in list_texts(command, name)
    if (text[0], text[2].name) not in ACCEPT_BLANK
]


def write_command_line(
    name: str, command: click.Command, tested: click.Parameter, blank: str
) -> list[str]:
    """Return a command line with a blank for one parameter and "x" for the required others."""
    line = [] if name == "mudroom" else name.split()
    if isinstance(tested, click.Option):
        line += [tested.opts[-1], blank]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    for argument in arguments:
        if argument is tested:
            return [*line, blank]
        line += ["x"] if argument.required or isinstance(tested, click.Argument) else []
    return [*line, "list"] if isinstance(command, click.Group) else line


@pytest.mark.parametrize("blank", ["", " \t"])
@pytest.mark.parametrize(
    ("name", "command", "tested"), TEXTS, ids=[f"{text[0]} {text[2].opts[-1]}" for text in TEXTS]
)
def test_a_blank_text_is_refused(
    name: str,
    command: click.Command,
    tested: click.Parameter,
    blank: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert run(write_command_line(name, command, tested, blank)) == 2
    message = capsys.readouterr().err
    assert tested.get_error_hint(click.Context(command)) in message
    assert "it is blank" in message and "leave" in message.lower()
    assert not list(tmp_path.iterdir())


def test_the_texts_of_all_commands_are_tested() -> None:
    flags = {text[2].opts[-1] for text in TEXTS}
    assert {"--agent", "--agents", "--json-schema", "--fallback-model", "--resume"} <= flags
    assert len(TEXTS) > 40


@pytest.mark.parametrize(("name", "parameter"), ACCEPT_BLANK)
def test_the_exceptions_exist(name: str, parameter: str) -> None:
    command: click.Command = {"mudroom": root_command, **ALL_COMMANDS}[name.partition(" ")[0]]
    for word in name.split()[1:]:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    assert parameter in [each.name for each in command.params]


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
