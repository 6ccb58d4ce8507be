"""Parsing of the command line: flags, commands, help, and one line for each error."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mudroom._cli.commands._command_line import ALL_COMMANDS, MODULES, apply_leading_options
from mudroom._cli.commands.root import _parse_prompt, root_command
from mudroom._cli.main import _describe_error, run
from mudroom._version import __version__
from mudroom.errors import JournalError, ModelUnavailable


def run_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "x", "--outputformat", "json"], "--output-format"),
        (["-p", "x", "-o", "jsn"], "'jsn' is not one of"),
        (["-p", "x", "--max-children", "many"], "'many' is not a valid whole number"),
        (["doctr"], "unknown command 'doctr'. Did you mean doctor?"),
        (["-C", ".", "veiw"], "Did you mean view?"),
        (["knead"], "unknown command 'knead'. mudroom help lists the commands."),
        (["login"], 'To ask it as a prompt: mudroom -p "login"'),
        (
            ["kneader", "list"],
            "unknown command 'kneader'. mudroom help lists the commands. To ask it",
        ),
        (["kneader", "list"], 'mudroom -p "kneader list"'),
        (["knead", "me"], "unknown command 'knead'. mudroom help lists the commands. To ask it"),
        (["knead", "me"], 'mudroom -p "knead me"'),
        (["login", "now", "--model", "offline"], "Keys are environment variables: see mudroom"),
        (["-p", "x", "--yolo"], "Did you mean --dangerously-skip-permissions?"),
        (["runs", "--yolo"], "unknown option '--yolo'. See mudroom help runs."),
        (["install", "--force"], "unknown command 'install'"),
        (["-o", "json", "upgrade"], "unknown command 'upgrade'"),
        (["fix", "the", "bug"], 'mudroom -p "fix the bug"'),
        (["-m", "offline", "runs"], "runs has no option --model"),
        (["--trust", "agents", "check"], "agents check has no option --trust"),
        (["-C", "/no/such/folder", "doctor"], "no such directory (/no/such/folder)"),
        (["help", "shw"], "Did you mean show?"),
        (["help", "mcp", "ad"], "unknown command 'ad'. Did you mean add?"),
        (["help", "show", "x"], "mudroom show has no subcommands (x). Write: mudroom help show"),
        (["mcp", "add"], "missing argument 'NAME'. See mudroom help mcp add."),
        (["rename"], "missing argument 'ID'. See mudroom help rename."),
        (["runs", "--jsn"], "unknown option '--jsn'. Did you mean --json? See mudroom help runs."),
        (["--zzz"], "unknown option '--zzz'. Put -- before a prompt that begins with a dash"),
        (["-dash prompt"], 'Put -- before a prompt that begins with a dash: mudroom -- "-…".'),
        (["--modle", "x"], "unknown option '--modle'. Did you mean --model or "),
        (["--max-tu"], "unknown option '--max-tu'. Did you mean --max-turns? See mudroom help."),
        (["-p", "x", "--max-minutes", "five"], "'five' is not a valid number"),
        (["board", "ad", "x"], "unknown command 'ad'. Did you mean add? See mudroom help board."),
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-C", "/x", "resume"], ["resume", "-C", "/x"]),
        (["-C/x", "resume", "last"], ["resume", "last", "-C", "/x"]),
        (["-q", "-o", "json", "resume", "last"], None),
        (["--quiet", "replay", "last"], ["replay", "last", "--quiet"]),
        (["-p", "runs"], ["-p", "runs"]),
        (["-p", "-C", "/x", "runs"], ["-p", "-C", "/x", "runs"]),
        (["--help", "runs"], ["--help", "runs"]),
        (["-m", "runs", "fix it"], ["-m", "runs", "fix it"]),
        (["--no-such", "runs"], ["--no-such", "runs"]),
        (["runs", "--json"], ["runs", "--json"]),
    ],
)
def test_options_before_a_command_belong_to_it(
    arguments: list[str], expected: list[str] | None
) -> None:
    expected = expected or ["resume", "last", "--quiet", "--output-format", "json"]
    assert apply_leading_options(arguments, root_command, ALL_COMMANDS) == expected


def test_a_folder_before_a_command_becomes_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    assert run(["-C", str(tmp_path), "config", "path"]) == 0
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [["fix the bug"], ["Hello"], ["你好"], ["-p", "knead"], ["knead", "-p"], ["--prompt=x"]],
)
def test_prompts_are_not_taken_as_commands(arguments: list[str]) -> None:
    context = root_command.make_context("mudroom", arguments)
    words, flag = context.params["words"], context.params["print_prompt"]
    prompt, _ = _parse_prompt(words, flag)
    assert prompt


def test_help_lists_every_flag_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help-all"]) == 0
    out = capsys.readouterr().out
    assert all(
        option in out
        for parameter in root_command.params
        for option in parameter.opts
        if option.startswith("-")
    )
    assert all(f"\n  {name} " in out for name in set(ALL_COMMANDS) - {"help"})
    assert run(["help", "mcp", "add"]) == 0
    assert "Usage: mudroom mcp add" in capsys.readouterr().out
    assert run(["help", "show"]) == 0
    assert "--run" in capsys.readouterr().out


def test_the_table_names_the_commands_of_each_module_in_order() -> None:
    for name, commands in MODULES.items():
        module = import_module(f"mudroom._cli.commands.{name}")
        assert list(module.COMMANDS) == commands.split()


@pytest.mark.parametrize("flag", ["-V", "-v"])
def test_version_flag_prints_one_line(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([flag]) == 0
    assert capsys.readouterr().out == f"mudroom {__version__}\n"


def test_version_flag_imports_nothing_slow() -> None:
    script = (
        "import sys; sys.argv = ['mudroom', '--version']\n"
        "from mudroom._cli.main import main; main()\n"
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
    assert _describe_error(error) == (text, code)


@pytest.mark.parametrize("package", ["msgspec", "click"])
def test_a_missing_dependency_is_one_line_with_the_remedy(package: str, tmp_path: Path) -> None:
    program = f"import sys; sys.modules[{package!r}] = None\n"
    program += "from mudroom._cli.main import main; main(['-p', 'Hello', '--model', 'offline'])"
    environment = {**os.environ, "MUDROOM_HOME": str(tmp_path), "NO_COLOR": "1"}
    environment.pop("MUDROOM_DEBUG", None)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 1
    assert ended.stderr == (
        f"mudroom: the package {package} is not installed. Install mudroom again with its "
        "dependencies: pip install --force-reinstall mudroom\n"
    )


def test_the_program_collects_garbage_less_often_than_python() -> None:
    program = "import gc, sys; from mudroom._cli.main import main; before = gc.get_threshold()\n"
    program += "try: main(['--help'])\n"
    program += "finally: print(*before, *gc.get_threshold(), file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    *before, young, _, _ = map(int, ended.stderr.split())
    assert young > 10 * before[0]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("-p hi", 0), ("batch in.jsonl --agent explore", 0), ("batch - --out out.jsonl", 2)],
)
def test_a_closed_stdin_is_an_empty_one(tmp_path: Path, arguments: str, code: int) -> None:
    (tmp_path / "in.jsonl").write_text('"hi"\n')
    environment = {"PATH": os.environ["PATH"], "MUDROOM_HOME": str(tmp_path / "home")}
    command = f"exec '{sys.executable}' -m mudroom {arguments} --model offline <&-"
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert ended.returncode == code, ended.stderr
    assert code == 0 or "the batch is empty (stdin)" in ended.stderr


def test_an_agent_whose_file_is_broken_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / ".agents/agents/bad.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: [bad\n---\nYou are bad.\n")
    assert run(["-p", "hello", "-m", "offline", "--agent", "bad"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "unknown agent 'bad'" in error and f"{file}:" in error
    assert run(["-p", "hello", "-m", "offline"]) == 0
    assert f"1 error in agent files, the first: {file}:" in capsys.readouterr().err
