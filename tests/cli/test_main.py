"""Parsing of the command line: flags, commands, help, and one line for each error."""

import subprocess
import sys

import pytest

from mudroom._version import __version__
from mudroom.cli.commands.root import COMMANDS, root_command
from mudroom.cli.main import _message_and_code, run
from mudroom.errors import JournalError, ModelUnavailable


def run_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modle", "x"], "--model"),
        (["-p", "x", "--outputformat", "json"], "--output-format"),
        (["-p", "x", "-o", "jsn"], "'jsn' is not one of"),
        (["-p", "x", "--max-turns", "0"], "0 is not in the range"),
        (["-p", "x", "--max-children", "many"], "'many' is not a valid integer"),
        (["doctr"], "unknown command 'doctr'. Did you mean doctor?"),
        (["dcotor", "--json"], "Did you mean doctor?"),
        (["shwo", "last"], "Did you mean show?"),
        (["-C", ".", "veiw"], "Did you mean view?"),
        (["help", "shw"], "Did you mean show?"),
        (["show"], "Missing argument 'RUN'"),
        (["runs", "--jsn"], "--json"),
        (["-p", "one", "two"], "expected one prompt, but there are 2: one | two"),
        (["-p", ""], "the prompt is empty"),
        (["-p", " \t"], "the prompt is empty"),
        (["-C", "/no/such/folder", "-p", "x"], "no such directory (/no/such/folder)"),
        (["-C", __file__, "-p", "x"], "not a directory"),
    ],
)
def test_wrong_usage_names_the_error_and_the_nearest_name(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in run_refused(arguments, capsys)


def test_help_lists_every_flag_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["help"]):
        assert run(arguments) == 0
        out = capsys.readouterr().out
        assert all(
            option in out
            for parameter in root_command.params
            for option in parameter.opts
            if option.startswith("-")
        )
        assert all(name in out for name in COMMANDS)
    assert run(["help", "show"]) == 0
    assert "--run" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--version", "-V", "-v"])
def test_version_flag_prints_one_line(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([flag]) == 0
    assert capsys.readouterr().out == f"mudroom {__version__}\n"


def test_version_flag_imports_nothing_slow() -> None:
    script = (
        "import sys; sys.argv = ['mudroom', '--version']\n"
        "from mudroom.cli.main import main; main()\n"
        "slow = {'aiohttp', 'rich', 'prompt_toolkit', 'sqlite3', 'click', 'asyncio', 'msgspec'}\n"
        "print(slow & set(sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert process.stdout == f"mudroom {__version__}\nset()\n"


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (
            ZeroDivisionError("x"),
            "ZeroDivisionError: x. This is a bug in mudroom."
            " Run it again with MUDROOM_DEBUG=1 for a traceback.",
            1,
        ),
        (ModelUnavailable("overloaded", remedy="Try later."), "overloaded. Try later.", 75),
        (JournalError("the disk is full"), "the disk is full", 1),
        (PermissionError(13, "Permission denied", "/x"), "Permission denied: /x", 1),
        (BrokenPipeError(), "", 0),
    ],
)
def test_errors_become_one_line_and_an_exit_code(error: Exception, text: str, code: int) -> None:
    assert _message_and_code(error) == (text, code)
