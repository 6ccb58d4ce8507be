"""Programs and files of a folder before and after trust: each leaves a marker when it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, Session
from mudroom._adapters.agent_files import load_context_files
from mudroom._adapters.integrations.usable_programs import UsablePrograms
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.one_shot import find_call
from mudroom._cli.actions.programs.load_programs import load_programs
from mudroom._cli.actions.prompt_files import list_file_prompts
from mudroom._cli.actions.serve_acp import prepare_session
from mudroom._cli.actions.session_start import StartOptions
from mudroom._cli.interactive.plain_ui import PlainUI
from mudroom._cli.interactive.questions.trust_question import ask_for_trust, find_untrusted_files
from mudroom._cli.interactive.session_loop import run_sessions
from mudroom._cli.main import run
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom._session.config import Settings
from mudroom.permissions import trust
from mudroom_hosts.acp.setup import EditorSessionPlan

from ..permissions.test_approvals import ScriptedUI
from ..plugin_folder import write
from ..stranger_folder import PROMPT, Address, Stranger

FLAGS = ("-m", "offline", "--sandbox", "off", "--allowed-tools", "Bash(touch:*)")


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Stranger]:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setattr("sys.stdin", None)
    address = Address()
    thread = threading.Thread(target=address.server.serve_forever, args=(0.05,))
    thread.start()
    folder = Stranger(tmp_path, address)
    monkeypatch.chdir(folder.project)
    yield folder
    address.server.shutdown()
    thread.join()
    address.server.server_close()


def run_all(*commands: list[str]) -> None:
    for command in commands:
        run(command)


async def open_at_prompt(stranger: Stranger) -> None:
    settings = load_settings(".", model="offline", sandbox="off", allowed_tools="Bash(touch:*)")
    lines = ["no", PROMPT, *stranger.prompts, "/exit"]
    with give_lines(lines):
        async with PlainUI(settings) as ui:
            await run_sessions(ui, StartOptions(settings=settings, cwd=".", quiet=True))


@contextmanager
def give_lines(lines: list[str]) -> Generator[None]:
    reader, writer = os.pipe()
    os.write(writer, "".join(f"{line}\n" for line in lines).encode())
    os.close(writer)
    with os.fdopen(reader) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        yield


async def open_by_session(stranger: Stranger) -> None:
    options: dict[str, Any] = {"home": str(stranger.base / "state"), "journal": "memory"}
    async with Session(
        model="offline",
        integrations=Integrations(agent_files=True, trusted=False),
        sandbox="off",
        **options,
    ) as session:
        await session.run(PROMPT)
        for prompt in list_file_prompts(session):
            await session.run(prompt.format_prompt(""))


class NoQuestions:
    """An editor that is asked nothing."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        raise AssertionError(request)


async def open_by_editor(stranger: Stranger) -> None:
    flags = {"model": "offline", "sandbox": "off"}
    async with prepare_session(
        flags, EditorSessionPlan(cwd=str(stranger.project)), NoQuestions()
    ) as session:
        await session.run(PROMPT)
        for prompt in list_file_prompts(session):
            await session.run(prompt.format_prompt(""))


DOORS: list[Callable[[Stranger], Any]] = [
    open_at_prompt,
    open_by_session,
    open_by_editor,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_nothing_of_a_folder_runs_before_trust(
    stranger: Stranger, door: Callable[[Stranger], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    await door(stranger)
    assert stranger.list_markers() == set()
    assert stranger.address.requests == []
    if door is open_at_prompt:
        out = " ".join(capsys.readouterr().out.split())
        told = out.count("you have not trusted the shell commands in it")
        assert told == len(stranger.prompts)


# The command line starts an event loop of its own: its doors are no coroutines.
def test_no_command_runs_anything_of_a_folder_before_trust(stranger: Stranger) -> None:
    listings = ("mcp", "hooks", "plugins", "agents", "trust", "doctor", "permissions", "runs")
    of_servers = (["mcp", "tools"], ["mcp", "get", "remote"], ["mcp", "add", "more", "touch"])
    for command in (*([listing] for listing in listings), *of_servers):
        assert run(command) == 0, command
    assert stranger.list_markers() == set()
    assert stranger.address.requests == []


def test_print_mode_runs_nothing_of_a_folder_before_trust(
    stranger: Stranger, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--continue"], ["-o", "stream-json", "--isolate"]):
        assert run(["-p", PROMPT, *FLAGS, *more]) == 0, more
        err = capsys.readouterr().err
        assert len(re.findall(r"not used: \d+ MCP servers and \d+ hooks of this folder", err)) == 1
    for slash in stranger.prompts:
        assert run(["-p", slash, *FLAGS]) == 2, slash
        assert run(["-p", f" {slash}", *FLAGS]) == 1, slash
    assert stranger.list_markers() == set()
    assert stranger.address.requests == []
    err = capsys.readouterr().err
    assert err.count("you have not trusted the shell commands in it") == len(stranger.prompts)
    assert f"{stranger.project}/.claude/commands/fenced.md" in err


def test_programs_of_a_trusted_folder_run_until_they_change(stranger: Stranger) -> None:
    calls = [["-p", slash, *FLAGS] for slash in stranger.prompts]
    everything = [["-p", PROMPT, *FLAGS], ["mcp", "tools"], *calls]
    assert run(["trust", "add", "."]) == 0
    run_all(*everything)
    assert stranger.list_markers() == stranger.enabled
    assert ("/claude", "s3cret") in stranger.address.requests
    assert "/vscode" in {path for path, _ in stranger.address.requests}

    stranger.address.requests.clear()
    before = stranger.list_markers()
    stranger.version = "-changed"
    stranger.write()
    run_all(*everything)
    assert stranger.list_markers() == before
    assert stranger.address.requests == []

    assert run(["trust", "add", "."]) == 0
    assert run(["trust", "remove", "."]) == 0
    run_all(everything[0], calls[0])
    assert stranger.list_markers() == before


def test_modules_in_the_folder_are_not_imported(stranger: Stranger) -> None:
    names = ("json", "asyncio", "typing", "msgspec", "sitecustomize", "usercustomize", "mudroom")
    for name in names:
        text = f"open({str(stranger.markers / name)!r}, 'w')\n"
        write(stranger.project / f"{name}.py", text)
        write(stranger.project / name / "__init__.py", text)
    program = Path(sys.executable).with_name("mudroom")
    if not program.exists():
        pytest.skip("mudroom is not installed as a program")
    prompt = "Which testing framework does this project use?"
    done = subprocess.run(
        [str(program), "-p", prompt, "-m", "offline", "--worker", "process"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert stranger.list_markers() == set()
    assert "1 child" in done.stderr, done.stderr
    env = {**os.environ, "PYTHONPATH": str(stranger.project)}
    subprocess.run([sys.executable, "-c", "import json"], env=env, check=False)
    assert "sitecustomize" in stranger.list_markers()


def test_files_in_a_home_that_is_a_repository_are_the_users(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(stranger.project))
    marker = f"touch {stranger.markers}/own"
    write(stranger.project / ".claude/commands/own.md", f"{PROMPT}\n!`{marker}`")
    run(["-p", "/own", *FLAGS])
    assert "own" in stranger.list_markers()


OWN = "Words of the user."
STRANGE = "Words of a stranger."


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "state"))
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def write_agent(folder: Path, name: str, text: str) -> Path:
    fields = f"name: {name}\ndescription: Does it.\ntools: Read\n"
    return write(folder / f"agents/{name}.md", f"---\n{fields}---\n{text}")


@pytest.mark.parametrize("name", ["general", "explore", "plan", "Ex_Plore", "GENERAL", "mine"])
async def test_agents_of_the_folder_replace_none_before_trust(base: Path, name: str) -> None:
    mine = base / "user/.claude"
    write_agent(mine, "mine", OWN)
    path = write_agent(base / "project" / ".claude", name, STRANGE)

    async def find_words(*, trusted: bool) -> tuple[str, list[str]]:
        flags: dict[str, object] = {"model": "offline", "trust": trusted}
        async with prepare_session(
            flags, EditorSessionPlan(cwd=str(base / "project")), NoQuestions()
        ) as session:
            told = [line for line in map(str, session.notices) if str(path) in line]
            return "\n".join(agent.instructions for agent in session.agents), told

    words, told = await find_words(trusted=False)
    assert STRANGE not in words and OWN in words
    (line,) = [line for line in told if "is not used" in line]
    assert "mudroom trust add, or --trust" in line
    words, told = await find_words(trusted=True)
    assert STRANGE in words and not [line for line in told if "is not used" in line]


@pytest.mark.parametrize(
    ("typed", "own", "strange"),
    [
        ("/go", "commands/go.md", "commands/go.md"),
        ("/go", "commands/go.md", "skills/go/SKILL.md"),
        ("/go", "skills/go/SKILL.md", "commands/go.md"),
        ("/go", "skills/go/SKILL.md", "skills/go/SKILL.md"),
        ("/go", "commands/deep/go.md", "commands/go.md"),
        ("/deep:go", "commands/deep/go.md", "commands/deep/go.md"),
    ],
)
def test_slash_commands_of_the_folder_replace_none_before_trust(
    base: Path, typed: str, own: str, strange: str
) -> None:
    write(base / "user/.claude" / own, f"---\nname: go\n---\n{OWN}")
    write(base / "project" / ".claude" / strange, f"---\nname: go\n---\n{STRANGE}")

    def find_text(*flags: str) -> str:
        settings = load_settings(".", **dict.fromkeys(flags, True))
        call = find_call(typed, settings, ".", load_programs(settings, "."))
        assert call is not None
        return call.template.text

    assert OWN in find_text()
    if own == "skills/go/SKILL.md" or own == strange or "deep" in own:
        assert STRANGE in find_text("trust")


async def test_context_files_of_the_folder_replace_none_before_trust(base: Path) -> None:
    write(base / "user/.claude/CLAUDE.md", OWN)
    write(base / "project" / "AGENTS.md", STRANGE + " More." * 20_000)
    for is_trusted in (False, True):
        loaded = load_context_files(
            str(base / "project"), user_home=str(base / "user"), trusts_folder=is_trusted
        )
        text = loaded.to_prompt()
        assert STRANGE in text
        assert (OWN in text) is not is_trusted
        assert ("those of the user come last and take precedence" in text) is not is_trusted


HOOK_EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")


@pytest.fixture
def project(project: Path, tmp_path: Path) -> Path:
    """Return a folder whose servers and hooks create files beside it when they start."""
    (project / ".claude" / "agents").mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    server = {"command": "touch", "args": [str(tmp_path / "server-started")]}
    remote = {"url": "http://127.0.0.1:9/mcp", "headersHelper": f"touch {tmp_path}/helper-started"}
    text = json.dumps({"mcpServers": {"local": server, "remote": remote}})
    (project / ".mcp.json").write_text(text)
    (project / ".cursor").mkdir()
    (project / ".cursor" / "mcp.json").write_text(text.replace("started", "started-by-cursor"))
    handlers = [{"hooks": [{"command": f"touch {tmp_path}/hook-started"}]}]
    hooks = json.dumps({"hooks": dict.fromkeys(HOOK_EVENTS, handlers)})
    (project / ".claude" / "settings.json").write_text(hooks)
    (project / ".codex").mkdir()
    (project / ".codex" / "hooks.json").write_text(hooks.replace("started", "started-by-codex"))
    return project


def load(project: Path, settings: Settings) -> UsablePrograms:
    programs = load_programs(settings, str(project))
    assert programs is not None
    return programs


async def test_the_question_shows_all_commands_and_remembers_the_answer(project: Path) -> None:
    settings = Settings(home=str(project.parent / "state"))
    cwd = str(project)
    names = find_untrusted_files(settings, cwd)
    programs = load(project, settings)
    assert len(programs.untrusted) == 14

    ui = ScriptedUI("no")
    answer = await ask_for_trust(ui, settings, cwd, names, programs)
    assert ui.labels[0] == ["no", "yes, this time only", "yes, always trust this folder"]
    assert "declares 4 MCP servers and 10 hooks" in ui.titles[0]
    assert "outside the sandbox" in ui.titles[0]
    for program in programs.untrusted:
        assert program.shown in ui.bodies[0] and program.origin in ui.bodies[0]
    assert "MCP server local" in ui.bodies[0] and "hook PreToolUse" in ui.bodies[0]
    assert "helper-started" in ui.bodies[0]
    assert answer.programs is not None and not answer.programs.servers
    assert not answer.settings.trust

    answer = await ask_for_trust(ScriptedUI("yes"), settings, cwd, names, programs)
    assert answer.programs is not None and len(answer.programs.servers) == 2
    assert answer.settings.trust and load(project, settings).untrusted

    answer = await ask_for_trust(ScriptedUI("always"), settings, cwd, names, programs)
    assert answer.programs is not None and not answer.programs.untrusted
    assert not load(project, settings).untrusted
    assert trust.is_trusted(settings.home, cwd)


async def test_a_changed_set_is_asked_about_without_the_agents(project: Path) -> None:
    settings = Settings(home=str(project.parent / "state"))
    load(project, settings).remember_trust(settings.home)
    trust.trust_folder(settings.home, str(project))
    (project / ".mcp.json").write_text('{"mcpServers": {"new": {"command": "other"}}}')
    programs = load(project, settings)
    assert find_untrusted_files(settings, str(project)) == []
    ui = ScriptedUI("always")
    answer = await ask_for_trust(ui, settings, str(project), [], programs)
    assert "that you have not trusted, or that have changed" in ui.titles[0]
    assert ui.labels[0][-1] == "yes, always trust these programs"
    assert not answer.settings.trust and not load(project, settings).untrusted


async def test_the_home_folder_can_be_trusted_for_one_session_only(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    ui = ScriptedUI("yes")
    settings = Settings(home=str(project.parent / "state"))
    answer = await ask_for_trust(ui, settings, str(project), [".claude"])
    assert ui.labels == [["yes, this time only", "no"]] and answer.settings.trust


async def test_hidden_characters_of_a_command_are_visible_in_the_question(project: Path) -> None:
    settings = Settings(home=str(project.parent / "state"))
    name = "a\x1b[8m\nb"
    servers = {name: {"command": "sh", "args": ["-c", "echo" + " " * 90 + "\u202e;evil"]}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    ui = ScriptedUI("no")
    await ask_for_trust(ui, settings, str(project), [], load(project, settings))
    assert "a\\u{1b}[8m\\nb" in ui.bodies[0]
    assert "[90 blanks] \\u{202e};evil" in ui.bodies[0]


def test_doctor_has_a_row_for_servers_and_one_for_hooks(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".vscode").mkdir()
    (project / ".vscode" / "mcp.json").write_text("[]")
    run(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    rows = {check["name"]: check for check in checks if check["name"] in ("MCP servers", "hooks")}
    assert rows["MCP servers"]["state"] == rows["hooks"]["state"] == "warn"
    assert "4 servers in files, 4 not used; the first: not trusted" in rows["MCP servers"]["found"]
    assert rows["hooks"]["remedy"] == "mudroom hooks lists them all."
    problems = [check for check in checks if check["name"] == "MCP servers and hooks"]
    assert [(check["state"], check["remedy"]) for check in problems] == [
        ("warn", "Correct the file.")
    ]


def test_doctor_counts_plugins_and_names_one_that_is_missing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".claude/settings.json").write_text('{"enabledPlugins": {"tools@shop": true}}')
    run(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    (row,) = [check for check in checks if check["name"] == "plugins"]
    assert row["state"] == "warn" and row["remedy"] == "mudroom plugins lists them all."
    assert row["found"].startswith("1 plugin turned on, 1 not used; the first: ")
