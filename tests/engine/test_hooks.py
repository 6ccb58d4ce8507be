"""Hooks: they add text, refuse or change calls, and let a run continue."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.engine.conftest import Lines, Stage

from mudroom import Integrations, Reason, Report, Session, ToolResult
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import NoteInjected, PermissionDecided, ToolCallStarted
from mudroom._core.messages import TextBlock, ToolCallBlock
from mudroom._core.ports import Hooks, ToolHookDecision
from mudroom._core.runs import Brief
from mudroom._replay import replay


class RecordingHooks(Hooks):
    """Hooks that write down when they are called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

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
    await stage.run(script, integrations=Integrations(hooks=hooks))
    assert hooks.calls == [
        "on_prompt 1",
        "before_tool 1 task",
        "on_child_start 1.1.1",
        "before_tool 1.1.1 read",
        "after_tool 1.1.1 read",
        "before_finish 1.1.1 done",
        "on_child_end 1.1.1 GOAL",
        "after_tool 1 task",
        "before_finish 1 end",
    ]


async def test_a_compaction_calls_its_own_hook(stage: Stage) -> None:
    hooks = RecordingHooks()
    async with stage.open(["first", "summary"], integrations=Integrations(hooks=hooks)) as session:
        await session.run("PARENT")
        await session.compact()
    assert hooks.calls[2:] == ["before_compaction 2", "before_finish 2 summary"]


class AddText(Hooks):
    async def on_prompt(self, brief: Brief) -> str:
        return "The date is a Friday."


async def test_text_of_on_prompt_follows_the_prompt(stage: Stage) -> None:
    await stage.run(["end"], integrations=Integrations(hooks=AddText()))
    content = stage.model.requests[0].messages[0].content
    assert [block.text for block in content if isinstance(block, TextBlock)] == [
        "PARENT",
        "The date is a Friday.",
    ]
    (note,) = [event for event in stage.events if isinstance(event, NoteInjected)]
    assert note.origin == "hook"


class RefuseBash(Hooks):
    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        return ToolHookDecision(denial="no commands today") if call.name == "bash" else None


async def test_a_refused_call_never_acts_and_the_refusal_is_recorded(stage: Stage) -> None:
    report = await stage.run(
        [[call("bash", command="touch made")], "end"], integrations=Integrations(hooks=RefuseBash())
    )
    assert not (stage.folder / "made").exists() and report.calls == {}
    assert "no commands today" in stage.results[0].text and stage.results[0].error
    (decision,) = [event for event in stage.events if isinstance(event, PermissionDecided)]
    assert (decision.verdict, decision.allowed, decision.rule) == ("deny", False, "hook")


class ChangePath(Hooks):
    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        return ToolHookDecision(arguments={"file_path": "notes.txt"})

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        return msgspec.structs.replace(result, text=result.text + "\nchecked")


async def test_a_hook_changes_arguments_and_result(stage: Stage) -> None:
    await stage.run(
        [[call("read", path="missing.txt")], "end"], integrations=Integrations(hooks=ChangePath())
    )
    assert "one" in stage.results[0].text and stage.results[0].text.endswith("checked")
    (started,) = [event for event in stage.events if isinstance(event, ToolCallStarted)]
    assert started.call.arguments == {"file_path": "notes.txt"}


class RefuseChildren(Hooks):
    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        return "work alone"


async def test_a_refused_child_never_starts_and_costs_nothing(stage: Stage) -> None:
    await stage.run(
        [[call("task", prompt="CHILD")], "end"], integrations=Integrations(hooks=RefuseChildren())
    )
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
        ["done", "done, tests are green"], integrations=Integrations(hooks=WantTests())
    )
    assert (report.text, report.turns) == ("done, tests are green", 2)
    assert stage.list_notes() == ["Run the tests first."]


class Broken(Hooks):
    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        raise RuntimeError("hook is broken")


async def test_an_exception_of_a_hook_ends_the_run_with_error(stage: Stage) -> None:
    with pytest.raises(RuntimeError, match="hook is broken"):
        await stage.run(
            [[call("read", path="notes.txt")], "end"], integrations=Integrations(hooks=Broken())
        )
    assert stage.reports["1"].reason is Reason.ERROR


class AllAtOnce(ChangePath, AddText, WantTests):
    pass


async def test_a_run_with_hooks_and_messages_is_replayed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    journal = MemoryJournal()

    def answer(request: Request) -> Answer:
        if request.turn < 3:
            assert session.runs.send("1", f"message {request.turn}")
        answers = [[call("read", path="no")], "done", "more", "almost", "end"]
        return answers[request.turn]

    model = ScriptedModel(answer)
    async with Session(
        model=model,
        cwd=str(tmp_path),
        journal=journal,
        sandbox="off",
        integrations=Integrations(hooks=AllAtOnce()),
    ) as session:
        report = await session.run("PARENT")
    assert report.text == "end"
    events = journal.events
    assert await replay(events) == events
