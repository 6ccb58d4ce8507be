"""Calls of commands and skills: shell commands in their text, rules, model, tasks of a child."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom._cli.actions.load_permissions import load_permissions
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.open_session import create_session
from mudroom._cli.actions.programs.load_programs import load_programs
from mudroom._cli.actions.prompt_calls import fill_call, make_call
from mudroom._cli.actions.prompt_files import load_prompt_files
from mudroom._cli.actions.prompts import prepare_prompt
from mudroom._cli.interactive.plain_ui import PlainUI
from mudroom._cli.interactive.questions.approvals import ApprovalPrompt
from mudroom._cli.main import run
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom.errors import UsageError
from mudroom.permissions.rules import Permissions

from ..plugin_folder import write
from ..shown_session import show
from ..tools.test_files import make_png

Ask = Callable[..., tuple[int, str]]
TOUCH = """---
allowed-tools: Bash(touch:*)
---
Which testing framework does this project use?
!`touch $ARGUMENTS`
"""


@pytest.fixture
def ask(project: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(prompt: str, *flags: str) -> tuple[int, str]:
        fixed = ["-m", "offline", "--sandbox", "off", "--permission-mode", "dontAsk"]
        code = run(["-p", prompt, *fixed, *flags])
        return code, capsys.readouterr().err

    return ask


@pytest.mark.parametrize(
    ("flags", "settings", "refusal"),
    [
        ((), {}, ""),
        (("--disallowed-tools", "Bash(touch:*)"), {}, "is refused"),
        ((), {"disableSkillShellExecution": True}, ".claude/settings.json"),
    ],
)
def test_a_command_of_the_user_runs_shell_commands_unless_a_rule_or_a_setting_forbids_it(
    ask: Ask, project: Path, flags: tuple[str, ...], settings: dict[str, Any], refusal: str
) -> None:
    write(project.parent / "user/.claude/commands/make.md", TOUCH)
    write(project / ".claude/settings.json", settings)
    code, err = ask("/make new.txt", *flags)
    assert (code == 2) is bool(refusal) and refusal in err
    assert ("is refused" in err) is (refusal == "is refused")
    assert (project / "new.txt").exists() is not bool(refusal)


def test_a_command_of_a_plugin_runs_the_programs_beside_it(ask: Ask, project: Path) -> None:
    """As `ralph-loop` of Claude Code's plugins does."""
    root = project.parent / "my-plugin"
    write(root / ".claude-plugin/plugin.json", {"name": "loop"})
    script = root / "scripts/setup.sh"
    write(script, '#!/bin/sh\necho "$CLAUDE_PLUGIN_ROOT $1" >loop.txt\n')
    script.chmod(0o755)
    block = '```!\n"${CLAUDE_PLUGIN_ROOT}/scripts/setup.sh" $ARGUMENTS\n```\n'
    rule = "Bash(${CLAUDE_PLUGIN_ROOT}/scripts/setup.sh:*)"
    write(root / "commands/start.md", f"---\nallowed-tools: ['{rule}']\n---\n{block}Go.\n")
    _, err = ask("/loop:start now", "--plugin-dir", str(root))
    assert "is refused" not in err
    assert (project / "loop.txt").read_text() == f"{root} now\n"


def test_rules_of_a_folder_that_is_not_trusted_do_not_count(ask: Ask, project: Path) -> None:
    write(project / ".claude/commands/make.md", TOUCH)
    code, err = ask("/make new.txt")
    assert code == 2
    assert "you have not trusted the shell commands in it: touch $ARGUMENTS" in err
    assert not (project / "new.txt").exists()
    write(project / ".claude/commands/make.md", TOUCH.partition("!")[0])
    assert "not used: allowed-tools of" in ask("/make new.txt")[1]


def test_an_unknown_command_is_not_sent_as_a_prompt(ask: Ask, project: Path) -> None:
    code, err = ask("/diff")
    assert code == 2 and "unknown command '/diff'. mudroom -p calls commands of files" in err
    write(project.parent / "user/.claude/commands/make.md", TOUCH)
    assert "unknown command '/mak'. Did you mean /make?" in ask("/mak new.txt")[1]
    assert "did not understand" in ask(f"{project} is what?")[1], "a path is text"
    assert "A space before the slash makes it text" in ask("/login returns 404, why?")[1]
    assert "did not understand" in ask(" /login returns 404, why?")[1]


class Session:
    """A session at the prompt, with the commands of a project."""

    def __init__(self, project: Path) -> None:
        self.settings = load_settings(".", model="offline", sandbox="off", trust=True)
        self.loaded = load_permissions(self.settings, ".", can_ask=True)
        self.ui = PlainUI(self.settings)
        programs = load_programs(self.settings, ".")
        trusted = programs.trusted_prompts if programs else frozenset[str]()
        self.approvals = ApprovalPrompt(self.ui, trusted)
        self.session = create_session(
            self.settings, ".", self.loaded, approver=self.approvals.questions, journal="memory"
        )
        self.conversation = show(self.session, self.settings, self.ui, self.approvals)

    @property
    def runs(self) -> list[Any]:
        return self.conversation.tree.roots


async def test_outputs_and_files_are_in_the_prompt_and_mentions_in_outputs_are_not(
    project: Path,
) -> None:
    write(project / "notes.txt", "a note")
    write(project / "secret.txt", "a secret")
    write(project / ".claude/commands/sum.md", "See @notes.txt. Then: !`echo @secret.txt`")
    at_prompt = Session(project)
    async with at_prompt.conversation:
        await at_prompt.conversation.handle_line("/sum")
    (prompt,) = [root.prompt for root in at_prompt.runs]
    assert "Then: @secret.txt" in prompt
    assert "a note" in prompt
    assert "a secret" not in prompt


async def test_a_file_of_the_folder_sends_no_image_from_outside(project: Path) -> None:
    image = project.parent / "private.png"
    image.write_bytes(make_png(2, 2))
    inside = project / "inside.png"
    inside.write_bytes(make_png(2, 2))
    write(project / ".claude/commands/look.md", f"See @{image} and @inside.png $ARGUMENTS")
    write(project.parent / "user/.claude/commands/mine.md", f"See @{image}")
    settings = load_settings(".", model="offline")

    async def count_images(name: str, arguments: str = "") -> int:
        file = load_prompt_files(str(project))[name]
        call = make_call(file, arguments, settings, ".")
        filled = await fill_call(call, at_prompt.session, settings, Permissions())
        prompt = await prepare_prompt(
            at_prompt.session, settings, filled.line, teammates=(), typed=filled.typed
        )
        return len(prompt.images)

    at_prompt = Session(project)
    async with at_prompt.session:
        assert await count_images("/look") == 1
        assert await count_images("/look", f"and @{image}") == 2
        assert await count_images("/mine") == 1


async def test_many_attached_files_are_named_with_their_size_before_they_are_sent(
    project: Path,
) -> None:
    for name in "abc":
        write(project / f"{name}.txt", "words\n" * 15_000)
    settings = load_settings(".", model="offline")
    at_prompt = Session(project)
    async with at_prompt.session as session:
        two = await prepare_prompt(session, settings, "compare @a.txt and @b.txt", teammates=())
        three = await prepare_prompt(session, settings, "@a.txt @b.txt @c.txt", teammates=())
    assert [note.partition(":")[0] for note in two.notes] == ["a.txt", "b.txt"]
    *_, last = three.notes
    assert re.fullmatch(r"the attached files have about 67,\d{3} tokens together, .+", last), last


def test_arguments_are_no_shell_syntax(ask: Ask, project: Path) -> None:
    write(project.parent / "user/.claude/commands/make.md", TOUCH)
    ask("/make one.txt two;touch$IFS.three")
    assert (project / "one.txt").exists()
    assert {path.name for path in project.glob("*three")} == {"two;touch$IFS.three"}
    write(project.parent / "user/.claude/commands/sub.md", "!`touch $(echo $ARGUMENTS)`")
    code, err = ask("/sub a;touch b")
    assert code == 2 and "the arguments have characters that a shell interprets" in err


async def test_context_fork_is_a_task_and_its_report_is_in_the_next_prompt(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "---\ncontext: fork\nagent: explore\n---\nWhich testing framework is used? $ARGUMENTS"
    write(project / "user/.claude/skills/look/SKILL.md", text)
    write(project / ".claude/commands/look.md", text)
    write(project / "pyproject.toml", "[tool.pytest.ini_options]\n")
    at_prompt = Session(project)
    async with at_prompt.conversation:
        await at_prompt.conversation.handle_line("/look now")
        await at_prompt.conversation.handle_line("Say hello.")
    child, parent = at_prompt.runs
    assert child.agent == "explore"
    assert child.report.text in parent.prompt
    assert '<command name="/look">' in parent.prompt
    assert "pytest" in capsys.readouterr().out


async def test_rules_of_a_command_hold_for_its_prompt_only(project: Path) -> None:
    write(project.parent / "user/.claude/commands/go.md", TOUCH)
    at_prompt = Session(project)
    conversation = at_prompt.conversation
    async with conversation:
        await conversation.handle_line("/go made.txt")
        assert (project / "made.txt").exists()
        assert at_prompt.approvals.questions.rules == ()
        with at_prompt.approvals.allow(*make(project, "/go").rules):
            request = ApprovalRequest("1", "main", "bash", {"command": "touch x"}, why="")
            assert (await at_prompt.approvals.questions.decide(request)).allowed


def make(project: Path, name: str) -> Any:
    settings = load_settings(".", model="offline", trust=True)
    programs = load_programs(settings, ".")
    trusted = programs.trusted_prompts if programs else ()
    return make_call(load_prompt_files(str(project))[name], "", settings, ".", trusted)


class Answer:
    """An approver with one answer."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.asked: list[str] = []

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        self.asked.append(request.arguments["command"])
        return ApprovalDecision(self.allowed, "because")


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_command_that_needs_a_confirmation_is_asked_about(
    project: Path, allowed: bool
) -> None:
    write(project / ".claude/commands/ask.md", "Got: !`touch asked.txt && echo done`")
    at_prompt = Session(project)
    answer = Answer(allowed)
    permissions = Permissions(can_ask=True)
    async with at_prompt.session:
        filling = fill_call(
            make(project, "/ask"), at_prompt.session, at_prompt.settings, permissions, answer
        )
        if allowed:
            prompt = await filling
            assert "Got: done" in prompt.put_outputs(prompt.line)
        else:
            with pytest.raises(UsageError, match="is refused: because"):
                await filling
    assert answer.asked == ["touch asked.txt && echo done"]
    assert (project / "asked.txt").exists() is allowed


async def test_a_model_of_a_command_is_for_its_prompt_only(project: Path) -> None:
    write(project.parent / "user/.claude/commands/other.md", "---\nmodel: offline\n---\nSay hello.")
    write(project.parent / "user/.claude/commands/none.md", "---\nmodel: no:such\n---\nSay hello.")
    assert make(project, "/other").template.model == "offline"
    unusable = make(project, "/none")
    assert unusable.template.model == ""
    assert "no:such cannot be used" in unusable.notices[0]
    at_prompt = Session(project)
    async with at_prompt.conversation:
        await at_prompt.conversation.handle_line("/other")
        report = await at_prompt.session.run("Hello.", model="offline")
        assert report.model.startswith("offline")
