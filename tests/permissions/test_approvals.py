"""Approval requests: what the user sees, what is decided, and what is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import call
from mudroom._cli.interactive.questions.approvals import ApprovalPrompt
from mudroom._cli.interactive.questions.question_lines import format_body
from mudroom._cli.output.scrollback import Scrollback
from mudroom._cli.output.text import Line, measure_width, split_line
from mudroom._core.events import SessionOpened, TurnFinished
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom._core.ports.approval import InputForm
from mudroom._core.tools import ToolCategory
from mudroom._projections.run_tree import RunTree
from mudroom._projections.safe_text import escape_hidden
from mudroom._replay import replay
from mudroom.permissions.approved_rules import load_approved
from mudroom.permissions.rules import Permissions
from mudroom.testing.event_builders import run_started

from .conftest import Play, ScriptedApprover

ASKING = replace(Permissions(), can_ask=True)


class ScriptedUI:
    """UI that gives the answers passed to it, in order."""

    def __init__(self, *answers: str | None) -> None:
        self.written: list[str] = []
        self.titles: list[str] = []
        self.labels: list[list[str]] = []
        self.bodies: list[str] = []
        self.scrollback = Scrollback(write=self.written.append, columns=lambda: 80, color=False)
        self._answers = list(answers)

    @property
    def text(self) -> str:
        return "".join(self.written)

    async def choose(
        self,
        title: str,
        items: Sequence[tuple[str, str]],
        *,
        free_text: bool = False,
        body: Sequence[Line] = (),
        is_searchable: bool = False,
    ) -> str | None:
        self.titles.append(title)
        self.labels.append([label for _, label in items])
        self.bodies.append("\n".join("".join(text for text, _ in line) for line in body))
        return self._answers.pop(0)


def make_request(command: str = "make", **more: Any) -> ApprovalRequest:
    return ApprovalRequest(
        "1.1.1",
        "explore",
        "bash",
        {"command": command},
        "no rule allows it",
        category=ToolCategory.RUN,
        **more,
    )


@asynccontextmanager
async def ask_at_prompt(ui: ScriptedUI, folder: Path) -> AsyncGenerator[ApprovalPrompt]:
    """Open a session whose calls the user of the UI is asked about."""
    approvals = ApprovalPrompt(ui)
    session = Session(
        model="offline",
        cwd=str(folder),
        home=str(folder),
        sandbox="off",
        journal="memory",
        approver=approvals.questions,
    )
    async with session:
        approvals.questions.start_session(session)
        yield approvals


async def allows(approvals: ApprovalPrompt, command: str) -> bool:
    return (await approvals.questions.decide(make_request(command))).allowed


async def test_decisions_are_yes_no_and_no_with_a_reason() -> None:
    asked = ApprovalPrompt(ScriptedUI("yes", "no", None, "use make instead")).questions
    answers = [await asked.decide(make_request()) for _ in range(4)]
    assert [answer.allowed for answer in answers] == [True, False, False, False]
    assert answers[3].why == "the user said no: use make instead"


async def test_approval_for_the_session_covers_the_same_command_only(tmp_path: Path) -> None:
    ui = ScriptedUI("session", "no", "session", "no")
    edit = ApprovalRequest(
        "1",
        "main",
        "edit",
        {"file_path": "a"},
        "a file is changed",
        category=ToolCategory.WRITE,
    )
    async with ask_at_prompt(ui, tmp_path) as approvals:
        assert await allows(approvals, "make")
        assert await allows(approvals, "make")
        assert not await allows(approvals, "make x")
        asked = approvals.questions
        assert (await asked.decide(edit)).allowed
        write = replace(edit, tool="write", arguments={"file_path": "b"})
        assert (await asked.decide(write)).allowed
        assert not (await asked.decide(replace(edit, tool="mcp__a__b", category=None))).allowed


async def test_the_answer_to_one_question_allows_the_next_call_that_waits(tmp_path: Path) -> None:
    ui = ScriptedUI("session", "no")
    async with ask_at_prompt(ui, tmp_path) as approvals:
        commands = ("touch a", "touch b", "make")
        answers = await asyncio.gather(*(allows(approvals, command) for command in commands))
    assert answers == [True, True, False]
    assert len(ui.titles) == 2


async def test_a_question_names_a_child_as_the_prompt_does() -> None:
    started = [
        run_started("1", agent="main", prompt="Look around"),
        run_started("1.1.1", "1", agent="explore", description="count lines", call_id="c1"),
        run_started("1.1.2", "1", agent="explore", description="count lines", call_id="c2"),
    ]
    ui = ScriptedUI("yes", "yes", "yes")
    approvals = ApprovalPrompt(ui)
    asked = approvals.questions
    approvals.tree = RunTree.from_events(started[:2])
    await asked.decide(make_request("make"))
    await asked.decide(ApprovalRequest("1", "main", "merge", {"run": "1.1.1"}, "1 file changes"))
    approvals.tree = RunTree.from_events(started)
    await asked.decide(make_request("make"))
    assert ui.titles == [
        "explore (count lines) wants to run a command",
        "The main agent wants to merge the work of explore (count lines)",
        "explore#1.1.1 wants to run a command",
    ]


async def test_an_approval_covers_a_program_until_the_conversation_ends(tmp_path: Path) -> None:
    ui = ScriptedUI("session", "no", "folder")
    async with ask_at_prompt(ui, tmp_path) as approvals:
        assert await allows(approvals, "touch a")
        assert await allows(approvals, "touch b")
    assert ui.labels == [
        [
            "yes",
            "yes, always in this session: touch:*",
            "yes, always in this folder: touch:*",
            "no (or type what to do instead)",
        ]
    ]
    assert "? explore#1.1.1: bash touch a" in ui.text
    assert "Allowed in this session: touch:*" in ui.text
    async with ask_at_prompt(ui, tmp_path) as approvals:
        assert not await allows(approvals, "touch d")
        assert await allows(approvals, "touch e")
    assert "touch:*" in (tmp_path / "approved.json").read_text()


async def test_a_rule_that_cannot_be_kept_for_the_folder_holds_for_the_session(
    tmp_path: Path,
) -> None:
    ui = ScriptedUI("folder")
    (tmp_path / "approved.json").write_text("no JSON")
    async with ask_at_prompt(ui, tmp_path) as approvals:
        decision = await approvals.questions.decide(make_request("touch a"))
        assert await allows(approvals, "touch b")
    assert decision.allowed
    assert decision.why == "the user said yes, for this session"
    shown = " ".join(ui.text.split())
    assert "Allowed in this session: touch:* (not kept: " in shown
    assert "the approved rules cannot be read" in shown


async def test_a_removed_approval_is_asked_again(tmp_path: Path) -> None:
    ui = ScriptedUI("session", "session", "folder", "no", "no", "no")
    commands = ("touch a", "python3 -c 1", "mkdir b")
    async with ask_at_prompt(ui, tmp_path) as approvals:
        for command in commands:
            assert await allows(approvals, command)
        rules = approvals.questions.rules
        assert [str(rule) for rule in rules] == [
            "allow bash(touch:*) (approved for this session)",
            "allow bash(python3 -c 1) (approved for this session)",
            "allow bash(mkdir:*) (approved for this session)",
        ]
        kept = load_approved(str(tmp_path), str(tmp_path))
        approvals.questions.remove_rules(*rules[:2], *kept)
        assert approvals.questions.rules == load_approved(str(tmp_path), str(tmp_path)) == ()
        for command in commands:
            assert not await allows(approvals, command)


async def test_an_approved_call_without_a_rule_is_listed_and_removed(tmp_path: Path) -> None:
    ui = ScriptedUI("session", "no")
    async with ask_at_prompt(ui, tmp_path) as approvals:
        assert await allows(approvals, "echo * > a")
        (rule,) = approvals.questions.rules
        assert str(rule) == "allow bash, this exact call(echo * > a) (approved for this session)"
        approvals.questions.remove_rules(rule)
        assert not await allows(approvals, "echo * > a")


async def test_a_question_without_an_answer_stops_the_run() -> None:
    stopped: list[bool] = []
    approvals = ApprovalPrompt(ScriptedUI(None))
    approvals.stop = lambda: stopped.append(True)
    decision = await approvals.questions.decide(make_request())
    assert (decision.allowed, decision.why, stopped) == (False, "the user stopped the run", [True])


async def test_all_open_parts_of_a_command_are_marked(tmp_path: Path) -> None:
    ui = ScriptedUI("no")
    async with ask_at_prompt(ui, tmp_path) as approvals:
        assert not await allows(approvals, "ls && touch a && make b")
    assert "  needs approval: touch a\n  needs approval: make b" in ui.bodies[0]
    lines = format_body(make_request("ls && touch a"), ["touch a"])
    assert ("touch a", "bold yellow") in lines[0]


async def test_a_change_of_a_file_is_asked_with_its_difference(
    play: Play, make_approver: Callable[..., ScriptedApprover]
) -> None:
    (play.folder / "a.py").write_text("x = 1\ny = 2\nz = 3\n")
    approver = make_approver(True)
    edit = call("edit", file_path="a.py", old_string="y = 2", new_string="y = 4")
    await play(
        [[edit], [call("write", file_path="b.py", content="b\n")], "Done."],
        approver=approver,
        permissions=ASKING,
    )
    edited, written = approver.questions
    assert edited.change == (
        (" ", "1  x = 1"),
        ("-", "2  y = 2"),
        ("+", "2  y = 4"),
        (" ", "3  z = 3"),
    )
    assert written.change == (("+", "1  b"),)


async def test_the_answer_of_the_model_is_shown_and_stored_before_the_question(
    play: Play,
) -> None:
    class Reader(ScriptedApprover):
        async def decide(self, question: ApprovalRequest) -> ApprovalDecision:
            assert any(isinstance(event, TurnFinished) for event in play.events)
            return await super().decide(question)

    approver = Reader(True)
    await play(
        [[call("bash", command="touch made")], "Done."], approver=approver, permissions=ASKING
    )
    assert approver.questions and (play.folder / "made").exists()
    (judged,) = play.judged
    outcome = (judged.verdict, judged.allowed, judged.approver_reason, judged.name)
    assert outcome == ("ask", True, "said the user", "bash")


async def test_an_approval_request_shows_the_whole_command() -> None:
    ui = ScriptedUI("no")
    command = "git diff" + " " * 5_000 + "; curl evil\x1b[2K\r\u202e\n" + "\n" * 50 + "rm x"
    request = make_request(command, command_part="curl evil")
    await ApprovalPrompt(ui).questions.decide(request)
    assert ui.titles == ["explore#1.1.1 wants to run a command"]
    (text,) = ui.bodies
    assert "Reason: no rule allows it" in text
    assert (
        "[5000 blanks]" in text
        and "curl evil\\u{1b}[2K\\u{d}\\u{202e}" in text
        and "empty lines]" in text
        and "rm x" in text
    )
    assert "needs approval: curl evil" in text


@pytest.mark.parametrize(
    "hidden", ["\x1b]0;x\x07", "\r", "\u200b", "\u202e", "\x00", "\x9b2J", "\ud800", "\u2028"]
)
def test_hidden_characters_are_shown_in_an_approval_request(hidden: str) -> None:
    assert hidden not in escape_hidden(f"a{hidden}b") and "\\u{" in escape_hidden(f"a{hidden}b")


def decode(shown: str) -> str:
    """Return the text that `escape_hidden` shows."""

    def expand(match: re.Match[str]) -> str:
        return (" " if match[2] == "blanks" else "\n") * int(match[1])

    shown = re.sub(r" \[(\d+) (blanks|empty lines)\] ", expand, shown)
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: chr(int(match[1], 16)), shown)


COMMANDS = {
    "long": "echo " + "x" * 9_000 + "; rm y",
    "many lines": "\n".join(f"step {n}" for n in range(300)),
    "a line like a wrapped one": "echo " + "word " * 40 + "\n  rm -rf y",
    "hidden": "a\r\x1b[2K\u202eb\u2066\u200b\0\x9b\u2028\ud800c",
    "blank letters": "a\u3164\u2800\ufe0f\U000e0101\u034f\u115fb",
    "trailing blanks": "rm a\\ \n\nrm b ",
    "gaps": "a" + " " * 99 + "b" + "\n" * 9 + "c",
    "what looks escaped": "echo '\\u{202e}' [30 blanks] [9 empty lines]",
    "wide": "echo " + "漢字" * 60 + " ｒｍ",
    "here document": "cat <<'E' >f\n  1  x\n\nE\nrm y",
}


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_is_shown_is_what_runs(command: str, columns: int) -> None:
    lines = format_body(make_request(command))[:-1]
    count = len(lines)
    texts = ["".join(text for text, _ in line) for line in lines]
    start = 6 + len(str(count)) if count > 1 else 2
    assert decode("\n".join(text[start:] for text in texts)) == command
    if count > 1:
        assert [int(text[:start]) for text in texts] == list(range(1, count + 1))
    for line, text in zip(lines, texts, strict=True):
        rows = ["".join(part for part, _ in row) for row in split_line(line, columns)]
        assert max(map(measure_width, rows)) <= columns
        assert "".join(row.strip() for row in rows).replace(" ", "") == text.replace(" ", "")


def test_no_value_of_an_argument_looks_like_another_argument() -> None:
    def show(**arguments: object) -> list[str]:
        request = ApprovalRequest("1", "main", "mcp__a__b", dict(arguments), "why")
        return ["".join(text for text, _ in line) for line in format_body(request)]

    assert show(a="1\nb: 2") != show(a="1", b=2)
    assert show(a="2") != show(a=2)
    assert show(a="true") != show(a=True)
    assert show(a={"b": "\u202e"})[0] == '  a: {"b": "\\u{202e}"}'


def test_a_long_path_of_a_changed_file_is_shown_whole() -> None:
    path = "d/" * 120 + "\u202etxt.sh"
    request = ApprovalRequest(
        "1",
        "main",
        "write",
        {"file_path": path, "content": "x"},
        "why",
        category=ToolCategory.WRITE,
        change=(("+", "x"),),
    )
    assert decode("".join(text for text, _ in format_body(request)[0])) == f"  file: {path}"


async def test_the_rule_that_is_shown_is_the_rule_that_is_stored(tmp_path: Path) -> None:
    command = "make " + "target " * 60 + "end"
    ui = ScriptedUI("session")
    async with ask_at_prompt(ui, tmp_path) as approvals:
        assert await allows(approvals, command)
    (rule,) = approvals.questions.rules
    shown = f"{ui.labels[0]} {ui.bodies[0]}"
    assert rule.pattern in decode(shown) or "this exact command" in shown


def test_other_tools_are_shown_with_all_their_arguments() -> None:
    lines = format_body(
        ApprovalRequest(
            "1",
            "main",
            "write",
            {"file_path": "a\tb", "content": "x\ny", "n": 1},
            "a file is written",
        )
    )
    assert [line[0][0] for line in lines] == [
        "  file_path: a    b",
        "  content: x",
        "      y",
        "  n: 1",
        "  Reason: a file is written",
    ]


async def test_an_ask_rule_denies_when_no_user_is_present(
    play: Play,
) -> None:
    base_rules = Permissions.of(ask=["Bash(touch:*)"])
    await play([[call("bash", command="touch made")], "Done."], permissions=base_rules)
    (finished,) = play.results
    assert finished.refused and finished.result.error
    assert finished.result.text == (
        "bash was not allowed: no user is present to confirm it; a rule says ask; "
        "ask bash(touch:*); in: touch made. "
        "Find another way, or do without."
    )


async def test_a_denial_names_its_rule_and_the_run_continues(play: Play) -> None:
    base_rules = Permissions.of(deny=["Bash(touch:*)"])
    report = await play(
        [[call("bash", command="cd . && touch made")], [call("bash", command="echo on")], "Done."],
        permissions=base_rules,
    )
    assert "deny bash(touch:*); in: touch made" in play.results[0].result.text
    assert play.results[1].result.text == "on" and report.ok
    assert [(judged.verdict, judged.allowed, judged.rule) for judged in play.judged] == [
        ("deny", False, "deny bash(touch:*)")
    ]


async def test_an_allowed_call_records_no_permission_event(play: Play) -> None:
    await play([[call("bash", command="echo on")], "Done."])
    assert play.judged == []


async def test_granted_rights_are_recorded(play: Play) -> None:
    journal, base_rules = (
        MemoryJournal(),
        Permissions.of(allow=["Bash(make:*)"], deny=["Bash(rm:*)"]),
    )
    await play(["Done."], permissions=base_rules, allow_net=True, journal=journal)
    opened = next(event for event in journal.events if isinstance(event, SessionOpened))
    assert opened.rights == ("network", "allow bash(make:*)") and opened.sandbox == "off"


async def test_a_replay_repeats_denials_and_decisions(
    play: Play, make_approver: Callable[..., ScriptedApprover]
) -> None:
    base_rules = replace(Permissions.of(deny=["Bash(rm:*)"]), can_ask=True, denies_unlisted=False)
    script = [
        [
            call("bash", command="touch a"),
            call("bash", command="rm a"),
            call("bash", command="touch b"),
        ],
        "Done.",
    ]
    await play(script, approver=make_approver(True, False), permissions=base_rules)
    stored: list[Any] = [event for event in play.events if type(event).__name__ != "Delta"]
    again = await replay(stored)
    assert [event for event in again if type(event).__name__ == "PermissionDecided"] == play.judged


RunCli = Callable[..., tuple[int, str]]
"""Takes the arguments of the command line; returns exit code and output."""


@pytest.fixture
def run_cli(tmp_path: Path) -> RunCli:
    """Return a function that runs the command line."""

    def run(*arguments: str) -> tuple[int, str]:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "user"),
            "MUDROOM_HOME": str(tmp_path / "home"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "mudroom", *arguments],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_explain_names_the_deciding_rule_and_its_line(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(
        json.dumps({"permissions": {"deny": ["Bash(git push:*)"]}}, indent=1)
    )

    def explain(*arguments: str) -> tuple[int, str]:
        return run_cli("permissions", "explain", "-C", str(tmp_path), *arguments)

    code, text = explain("git diff && git push origin")
    assert code == 1 and text.startswith("deny: a rule says deny")
    assert f"deny bash(git push:*) ({tmp_path}/.claude/settings.json:4)" in text
    code, text = explain("ls; make", "--allowedTools", "Bash(make:*)")
    assert code == 0 and "allow bash(make:*) (--allowed-tools)" in text and "it only reads" in text
    code, text = explain("--json", "make")
    assert json.loads(text)["decision"]["verdict"] == "ask" and code == 1
    assert explain("make", "--headless")[0] == 0
    assert explain("src/a.py", "--tool", "Edit", "--permission-mode", "acceptEdits")[0] == 0


def test_an_invalid_rule_on_the_command_line_is_a_usage_error(run_cli: RunCli) -> None:
    code, text = run_cli("permissions", "explain", "ls", "--disallowed-tools", "Bash(")
    assert code == 2 and "not a rule" in text and "--disallowed-tools" in text


def test_trust_from_the_command_line(tmp_path: Path, run_cli: RunCli) -> None:
    (tmp_path / "p").mkdir()
    assert run_cli("trust", "add", str(tmp_path / "p")) == (0, f"trusted: {tmp_path / 'p'}\n")
    assert str(tmp_path / "p") in run_cli("trust", "list")[1]
    assert run_cli("trust", "remove", str(tmp_path / "p"))[0] == 0
    assert run_cli("trust", "remove", str(tmp_path / "p"))[0] == 2


# --- forms of MCP servers: fields, limits, defaults, addresses, and stopping


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "branch": {"type": "string", "description": "Name of the branch", "minLength": 2},
        "depth": {"type": "integer", "minimum": 1, "maximum": 9},
        "push": {"type": "boolean", "default": False},
        "style": {"oneOf": [{"const": "s", "title": "squash"}, {"const": "m", "title": "merge"}]},
        "labels": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
    },
    "required": ["branch"],
}


async def fill(
    form: InputForm, *answers: str | None
) -> tuple[ApprovalDecision, ScriptedUI, list[bool]]:
    ui = ScriptedUI(*answers)
    approvals = ApprovalPrompt(ui)
    stops: list[bool] = []
    approvals.stop = lambda: stops.append(True)
    request = ApprovalRequest("1.1.1", "coder", "mcp__git__commit", {}, why="", form=form)
    return await approvals.questions.decide(request), ui, stops


async def test_a_form_is_asked_field_by_field() -> None:
    form = InputForm("git", "How to commit?", SCHEMA)
    answers = ("x", "main", "ten", "12", "3", "no", "s", "a, c")
    decision, ui, stops = await fill(form, *answers)
    assert decision.allowed and not stops
    assert decision.arguments == {
        "branch": "main",
        "depth": 3,
        "push": False,
        "style": "s",
        "labels": ["a", "c"],
    }
    title = "MCP server git asks, in a call of coder#1.1.1 (1 of 5)"
    assert ui.titles[:2] == [title, title]
    assert "How to commit?" in ui.bodies[0] and "Name of the branch" in ui.bodies[0]
    assert "Name of the branch; at least 2 characters" in ui.bodies[0]
    assert "it has fewer than 2 characters" in ui.bodies[1]
    assert "'ten' is not a whole number" in ui.bodies[3]
    assert "12 is more than 9" in ui.bodies[4]
    assert ui.labels[0] == ["decline to answer"]
    assert ui.labels[5] == ["yes", "no", "the default: no", "decline to answer"]
    assert ui.labels[6] == ["squash", "merge", "no value", "decline to answer"]
    assert "? MCP server git: How to commit?" in ui.text and "Answered." in ui.text


async def test_optional_fields_can_be_left_out() -> None:
    skip = "no value"
    decision, _, _ = await fill(InputForm("git", "How?", SCHEMA), "main", skip, skip, skip, skip)
    assert decision.arguments == {"branch": "main", "push": False}


async def test_limits_of_a_wrong_type_are_not_used() -> None:
    wrong = {"minimum": "5", "maximum": None, "minLength": [1], "maxLength": True, "format": 7}
    kinds = {"depth": "integer", "branch": "string"}
    properties = {name: {"type": kind, **wrong} for name, kind in kinds.items()}
    schema = {"type": "object", "properties": properties}
    decision, ui, _ = await fill(InputForm("git", "How?", schema), "3", "main")
    assert decision.arguments == {"depth": 3, "branch": "main"}
    assert "at least" not in ui.bodies[0] and "at most" not in ui.bodies[0]


async def test_a_form_is_declined_or_the_run_is_stopped() -> None:
    form = InputForm("git", "How?", SCHEMA)
    decision, ui, stops = await fill(form, "main", "decline to answer")
    assert (decision.allowed, decision.arguments, stops) == (False, None, [])
    assert "Declined." in ui.text
    decision, ui, stops = await fill(form, None)
    assert (decision.allowed, stops) == (False, [True])


async def test_an_address_is_shown_with_its_host_and_without_hidden_characters() -> None:
    form = InputForm("git", "Log in\x1b[2J.", url="https://git.example.com/login?x=\u202e1")
    decision, ui, _ = await fill(form, "yes")
    assert decision.allowed
    assert "on the host git.example.com. mudroom does not open it." in ui.bodies[0]
    assert "\x1b" not in ui.bodies[0] and "\u202e" not in ui.bodies[0]
    assert not (await fill(form, "no"))[0].allowed


async def test_a_question_without_fields_is_yes_or_no() -> None:
    form = InputForm("git", "Go on?", {"type": "object", "properties": {}})
    assert (await fill(form, "yes"))[0].allowed
    assert not (await fill(form, "no"))[0].allowed
