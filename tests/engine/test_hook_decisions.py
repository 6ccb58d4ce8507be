"""Decisions of hooks: questions, permissions, contexts, ends of runs. Deny rules hold anyway."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from tests.engine.conftest import Lines, Stage

from mudroom import Integrations, Reason, Report, ToolResult
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, call
from mudroom._core.events import PermissionDecided, ToolCallFinished
from mudroom._core.messages import ToolCallBlock, ToolResultBlock
from mudroom._core.ports import ApprovalDecision, ApprovalRequest, Hooks, ToolHookDecision
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.errors import StoppedByHook
from mudroom.permissions import Permissions

TOUCH: list[Answer] = [[call("bash", command="touch made")], "end"]


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
    await stage.run(
        TOUCH, integrations=Integrations(hooks=hooks), permissions=permissions, approver=approver
    )
    assert approver.questions == questions
    assert (stage.folder / "made").exists() is is_made
    assert bool(hooks.denied) is not is_made


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
    await stage.run(
        TOUCH, integrations=Integrations(hooks=hooks), permissions=permissions, approver=approver
    )
    assert not approver.questions
    assert expected in stage.results[0].text


async def test_arguments_of_a_hook_are_judged_again(stage: Stage) -> None:
    hook = ToolHookDecision(verdict="allow", arguments={"command": "touch made"})
    lines: list[Answer] = [[call("bash", command="echo 1")], "end"]
    await stage.run(
        lines, integrations=Integrations(hooks=Deciding(before=hook)), permissions=DENIES
    )
    assert not (stage.folder / "made").exists()
    assert "was not allowed" in stage.results[0].text


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
    journal = MemoryJournal()
    lines: list[Answer] = [
        [call("read", file_path="notes.txt"), call("bash", command="touch made")],
        "end",
    ]
    await stage.run(lines, integrations=Integrations(hooks=AddContext()), journal=journal)
    blocks = stage.model.requests[1].messages[-1].content
    read, bash = [block.text for block in blocks if isinstance(block, ToolResultBlock)]
    assert read.endswith("\n\nbefore read\nafter read")
    assert bash.endswith("\n\nbefore bash")
    results = [event.result for event in stage.events if isinstance(event, ToolCallFinished)]
    assert {result.context for result in results} == {"before read\nafter read", "before bash"}
    assert await replay(journal.events) == journal.events


class Ends(Hooks):
    """Hooks that write down which runs begin and end."""

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


async def test_each_run_ends_once_and_the_text_for_a_child_is_in_its_first_request(
    stage: Stage,
) -> None:
    hooks = Ends()
    script: dict[str, Lines] = {
        "PARENT": [[call("task", prompt="CHILD"), call("task", prompt="LOST", max_turns=1)], "end"],
        "CHILD": ["done"],
        "LOST": [[call("read", file_path="notes.txt")]],
    }
    await stage.run(script, integrations=Integrations(hooks=hooks))
    assert hooks.calls[0] == "session startup"
    assert hooks.calls[-2:] == ["1 GOAL", "session ends: other"]
    expected = {"1.1.1 starts", "1.1.1 GOAL", "1.1.2 starts", "1.1.2 MAX_TURNS"}
    assert set(hooks.calls[1:-2]) == expected
    assert len(hooks.calls) == 7
    assert stage.list_notes("1.1.1") == ["Be brief."]


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
    report = await stage.run(TOUCH, integrations=Integrations(hooks=Stopping(moment)))
    assert (report.reason, report.error) == (Reason.ERROR, "not on Sundays")
    assert len(stage.model.requests) == (0 if moment == "on_prompt" else 1)
    assert not (stage.folder / "made").exists()


async def test_the_record_names_the_hook_that_allowed_a_call(stage: Stage) -> None:
    approver = Approver(allows=False)
    hooks = Deciding(before=ALLOW)
    await stage.run(
        TOUCH, integrations=Integrations(hooks=hooks), permissions=CAN_ASK, approver=approver
    )
    (decision,) = [event for event in stage.events if isinstance(event, PermissionDecided)]
    assert (decision.verdict, decision.allowed) == ("ask", True)
    assert (decision.rule, decision.approver_reason) == ("hook:PreToolUse x.json", "safe")
