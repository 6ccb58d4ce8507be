"""Hooks: they add text, refuse, allow and change calls, and end runs. Deny rules hold anyway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Lines, Stage

from mudroom import Integrations, Reason, Report, ToolResult
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import NoteInjected, PermissionDecided, ToolCallFinished, ToolCallStarted
from mudroom._core.messages import TextBlock, ToolCallBlock, ToolResultBlock
from mudroom._core.ports import ApprovalDecision, ApprovalRequest, Hooks, ToolHookDecision
from mudroom._core.runs import Brief
from mudroom.errors import StoppedByHook
from mudroom.permissions import Permissions

TOUCH: list[Answer] = [[call("bash", command="touch made")], "end"]
READ: list[Answer] = [[call("read", path="notes.txt")], "end"]


def with_hooks(hooks: Hooks) -> Integrations:
    return Integrations(hooks=hooks)


@dataclass
class Approver:
    """An approver that answers all questions alike, and keeps them."""

    allows: bool
    questions: list[str] = field(default_factory=list[str])

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        self.questions.append(request.tool)
        return ApprovalDecision(self.allows)


@dataclass
class Deciding(Hooks):
    """Hooks with fixed decisions."""

    before: ToolHookDecision | None = None
    answer: ToolHookDecision | None = None
    denied: list[str] = field(default_factory=list[str])

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        return self.before

    async def on_permission_request(
        self, brief: Brief, call: ToolCallBlock, why: str
    ) -> ToolHookDecision | None:
        return self.answer

    async def on_permission_denied(self, brief: Brief, call: ToolCallBlock, why: str) -> None:
        self.denied.append(f"{call.name}: {why}")


ASKS = Permissions.of(ask=["Bash(touch *)"])
DENIES = Permissions.of(deny=["Bash(touch *)"])
CAN_ASK = Permissions(can_ask=True)
ALLOW = ToolHookDecision(verdict="allow", why="safe", rule="hook:PreToolUse x.json")


@pytest.mark.parametrize(
    ("permissions", "hook", "questions", "is_made"),
    [
        (CAN_ASK, None, ["bash"], True),
        (CAN_ASK, ALLOW, [], True),
        (ASKS, ALLOW, ["bash"], True),
        (DENIES, ALLOW, [], False),
        (Permissions(), ToolHookDecision(verdict="ask"), ["bash"], True),
    ],
    ids=["no hook", "allow", "ask rule", "deny rule", "ask"],
)
async def test_rules_hold_beside_a_decision_before_a_call(
    stage: Stage,
    permissions: Permissions,
    hook: ToolHookDecision | None,
    questions: list[str],
    is_made: bool,
) -> None:
    approver = Approver(allows=True)
    hooks = Deciding(before=hook)
    options: dict[str, Any] = {"permissions": permissions, "approver": approver}
    await stage.run(TOUCH, integrations=with_hooks(hooks), **options)
    assert approver.questions == questions
    assert (stage.folder / "made").exists() is is_made
    assert bool(hooks.denied) is not is_made
    (decision,) = stage.select(PermissionDecided)
    if hook is ALLOW and not questions and is_made:
        assert (decision.verdict, decision.allowed) == ("ask", True)
        assert (decision.rule, decision.approver_reason) == ("hook:PreToolUse x.json", "safe")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ToolHookDecision(denial="not today"), "not today"),
        (ToolHookDecision(verdict="allow"), "(no output)"),
        (
            ToolHookDecision(verdict="allow", arguments={"command": "rm x"}),
            "bash was not allowed",
        ),
        (ToolHookDecision(verdict="allow", arguments={"command": "echo 7"}), "7"),
    ],
    ids=["deny", "allow", "changed to a denied call", "changed"],
)
async def test_a_hook_answers_in_place_of_the_approver(
    stage: Stage, answer: ToolHookDecision, expected: str
) -> None:
    approver = Approver(allows=False)
    permissions = Permissions.of(ask=["Bash(touch *)"], deny=["Bash(rm *)"])
    hooks = Deciding(answer=answer)
    options: dict[str, Any] = {"permissions": permissions, "approver": approver}
    await stage.run(TOUCH, integrations=with_hooks(hooks), **options)
    assert not approver.questions
    assert expected in stage.results[0].text


async def test_arguments_of_a_hook_are_judged_again(stage: Stage) -> None:
    hook = ToolHookDecision(verdict="allow", arguments={"command": "touch made"})
    lines: list[Answer] = [[call("bash", command="echo 1")], "end"]
    await stage.run(lines, integrations=with_hooks(Deciding(before=hook)), permissions=DENIES)
    assert not (stage.folder / "made").exists()
    assert "was not allowed" in stage.results[0].text


async def test_a_refused_call_never_acts_and_the_refusal_is_recorded(stage: Stage) -> None:
    hooks = Deciding(before=ToolHookDecision(denial="no commands today"))
    report = await stage.run(TOUCH, integrations=with_hooks(hooks))
    assert not (stage.folder / "made").exists() and report.calls == {}
    assert "no commands today" in stage.results[0].text and stage.results[0].error
    (decision,) = stage.select(PermissionDecided)
    assert (decision.verdict, decision.allowed, decision.rule) == ("deny", False, "hook")


class AddContext(Hooks):
    """Hooks that add a text before and after each call, and refuse commands."""

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        denial = "no commands" if call.name == "bash" else ""
        return ToolHookDecision(denial=denial, context=f"before {call.name}")

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        return msgspec.structs.replace(result, context=f"after {call.name}")


async def test_contexts_follow_the_results_and_are_recorded_and_replayed(stage: Stage) -> None:
    calls = [call("read", file_path="notes.txt"), call("bash", command="touch made")]
    await stage.run_checked([calls, "end"], integrations=with_hooks(AddContext()))
    blocks = stage.model.requests[1].messages[-1].content
    read, bash = [block.text for block in blocks if isinstance(block, ToolResultBlock)]
    assert read.endswith("\n\nbefore read\nafter read")
    assert bash.endswith("\n\nbefore bash")
    results = [event.result for event in stage.select(ToolCallFinished)]
    assert {result.context for result in results} == {"before read\nafter read", "before bash"}


class RecordingHooks(Hooks):
    """Hooks that write down when they are called, and give each run a text."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on_session_start(self, source: str) -> None:
        self.calls.append(f"session {source}")

    async def on_session_end(self, reason: str) -> None:
        self.calls.append(f"session ends: {reason}")

    async def on_run_start(self, brief: Brief) -> str:
        self.calls.append(f"{brief.run_id} starts")
        return "Be brief."

    async def on_run_end(self, brief: Brief, report: Report) -> None:
        self.calls.append(f"{brief.run_id} {report.reason}")

    async def on_prompt(self, brief: Brief) -> str:
        self.calls.append(f"on_prompt {brief.run_id}")
        return ""

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        self.calls.append(f"before_tool {brief.run_id} {call.name}")
        return None

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        self.calls.append(f"after_tool {brief.run_id} {call.name}")
        return None

    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        self.calls.append(f"on_child_start {child.run_id}")
        return ""

    async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
        self.calls.append(f"on_child_end {child.run_id} {report.reason}")

    async def before_finish(self, brief: Brief, text: str) -> str:
        self.calls.append(f"before_finish {brief.run_id} {text}")
        return ""

    async def before_compaction(self, brief: Brief) -> str:
        self.calls.append(f"before_compaction {brief.run_id}")
        return ""


async def test_hooks_are_called_in_the_order_of_the_run(stage: Stage) -> None:
    hooks = RecordingHooks()
    script: dict[str, Lines] = {
        "PARENT": [[call("task", prompt="CHILD")], "end"],
        "CHILD": [[call("read", path="notes.txt")], "done"],
    }
    await stage.run(script, integrations=with_hooks(hooks))
    assert hooks.calls == [
        "session startup",
        "on_prompt 1",
        "before_tool 1 task",
        "on_child_start 1.1.1",
        "1.1.1 starts",
        "before_tool 1.1.1 read",
        "after_tool 1.1.1 read",
        "before_finish 1.1.1 done",
        "1.1.1 GOAL",
        "on_child_end 1.1.1 GOAL",
        "after_tool 1 task",
        "before_finish 1 end",
        "1 GOAL",
        "session ends: other",
    ]
    assert stage.list_notes("1.1.1") == ["Be brief."]


async def test_a_compaction_calls_its_own_hook(stage: Stage) -> None:
    hooks = RecordingHooks()
    async with stage.open(["first", "summary"], integrations=with_hooks(hooks)) as session:
        await session.run("PARENT")
        hooks.calls.clear()
        await session.compact()
    assert "before_compaction 2" in hooks.calls and "before_finish 2 summary" in hooks.calls
    assert "on_prompt 2" not in hooks.calls


async def test_a_run_that_its_limit_ends_calls_the_hook_of_its_end_once(stage: Stage) -> None:
    hooks = RecordingHooks()
    script: dict[str, Lines] = {
        "PARENT": [[call("task", prompt="LOST", max_turns=1)], "end"],
        "LOST": [[call("read", file_path="notes.txt")]],
    }
    await stage.run(script, integrations=with_hooks(hooks))
    assert [each for each in hooks.calls if each.startswith("1.1.1 ")] == [
        "1.1.1 starts",
        "1.1.1 MAX_TURNS",
    ]


class AddText(Hooks):
    async def on_prompt(self, brief: Brief) -> str:
        return "The date is a Friday."


async def test_text_of_on_prompt_follows_the_prompt(stage: Stage) -> None:
    await stage.run(["end"], integrations=with_hooks(AddText()))
    content = stage.model.requests[0].messages[0].content
    assert [block.text for block in content if isinstance(block, TextBlock)] == [
        "PARENT",
        "The date is a Friday.",
    ]
    (note,) = stage.select(NoteInjected)
    assert note.origin == "hook"


class ChangePath(Hooks):
    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        return ToolHookDecision(arguments={"file_path": "notes.txt"})

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        return msgspec.structs.replace(result, text=result.text + "\nchecked")


async def test_a_hook_changes_arguments_and_result(stage: Stage) -> None:
    lines: list[Answer] = [[call("read", path="missing.txt")], "end"]
    await stage.run(lines, integrations=with_hooks(ChangePath()))
    assert "one" in stage.results[0].text and stage.results[0].text.endswith("checked")
    (started,) = stage.select(ToolCallStarted)
    assert started.call.arguments == {"file_path": "notes.txt"}


class RefuseChildren(Hooks):
    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        return "work alone"


async def test_a_refused_child_never_starts_and_costs_nothing(stage: Stage) -> None:
    lines: list[Answer] = [[call("task", prompt="CHILD")], "end"]
    await stage.run(lines, integrations=with_hooks(RefuseChildren()))
    assert stage.runs == ["1"]
    assert stage.results[0].text == "No child was started: work alone"


class WantTests(Hooks):
    def __init__(self) -> None:
        self.asked = False

    async def before_finish(self, brief: Brief, text: str) -> str:
        if self.asked:
            return ""
        self.asked = True
        return "Run the tests first."


async def test_a_note_of_before_finish_keeps_the_run_going(stage: Stage) -> None:
    report = await stage.run(
        ["done", "done, tests are green"], integrations=with_hooks(WantTests())
    )
    assert (report.text, report.turns) == ("done, tests are green", 2)
    assert stage.list_notes() == ["Run the tests first."]


class AllAtOnce(ChangePath, AddText, WantTests):
    pass


async def test_a_run_with_hooks_and_messages_is_replayed(stage: Stage) -> None:
    def answer(request: Request) -> Answer:
        if request.turn < 3:
            assert stage.session.runs.send("1", f"message {request.turn}")
        answers = [[call("read", path="no")], "done", "more", "almost", "end"]
        return answers[request.turn]

    report = await stage.run_checked(answer, integrations=with_hooks(AllAtOnce()))
    assert report.text == "end"


class Broken(Hooks):
    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        raise RuntimeError("hook is broken")


async def test_an_exception_of_a_hook_ends_the_run_with_error(stage: Stage) -> None:
    with pytest.raises(RuntimeError, match="hook is broken"):
        await stage.run(READ, integrations=with_hooks(Broken()))
    assert stage.reports["1"].reason is Reason.ERROR


class Stopping(Hooks):
    def __init__(self, moment: str) -> None:
        self.moment = moment

    async def on_prompt(self, brief: Brief) -> str:
        if self.moment == "on_prompt":
            raise StoppedByHook("not on Sundays")
        return ""

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        raise StoppedByHook("not on Sundays")


@pytest.mark.parametrize("moment", ["on_prompt", "before_tool"])
async def test_a_hook_that_stops_a_run_gives_a_report_and_no_exception(
    stage: Stage, moment: str
) -> None:
    report = await stage.run(TOUCH, integrations=with_hooks(Stopping(moment)))
    assert (report.reason, report.error) == (Reason.ERROR, "not on Sundays")
    assert len(stage.model.requests) == (0 if moment == "on_prompt" else 1)
    assert not (stage.folder / "made").exists()
