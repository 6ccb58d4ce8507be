"""Functions of a program as hooks: same inputs and outputs as hook programs, at every depth."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from mudroom import Budget, Children, Integrations, Reason, Session
from mudroom._adapters.integrations.hook_programs.spec import HookSpec
from mudroom._core.events import PermissionDecided, ToolCallFinished
from mudroom._projections.ledger import Ledger, describe_ledger
from mudroom.errors import UnknownName, UsageError
from mudroom.ports import HookCallback, Hooks
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call

Output = dict[str, Any] | None


class Recorder:
    """Hooks that keep their inputs, by event.

    Arguments:
        outputs: what the hook of an event returns.
    """

    def __init__(self, **outputs: Any) -> None:
        self.inputs: list[dict[str, Any]] = []
        self._outputs = outputs

    async def __call__(self, hook_input: dict[str, Any]) -> Output:
        self.inputs.append(hook_input)
        output = self._outputs.get(hook_input["hook_event_name"])
        return cast("Output", output(hook_input) if callable(output) else output)

    def list_events(self) -> list[str]:
        return [each["hook_event_name"] for each in self.inputs]

    def on(self, *events: str) -> dict[str, list[Any]]:
        return {event: [self] for event in events}


def answer_by_depth(request: Request) -> Answer:
    """Return the answer of three generations: each starts the next, the last runs a command."""
    depth = int(request.prompt.split()[0][1:])
    if request.turn:
        return f"end of {depth}"
    if depth < 2:
        return [call("task", prompt=f"D{depth + 1}", agent="general")]
    return [call("bash", command="touch made")]


def make_options(folder: Path, **options: Any) -> dict[str, Any]:
    return {
        "model": ScriptedModel(answer_by_depth),
        "cwd": str(folder),
        "home": str(folder / "home"),
        "journal": "memory",
        "environ": {},
        "sandbox": "off",
        "prompt_budget": Budget(depth=2),
        **options,
    }


async def test_a_refusal_reaches_the_child_at_depth_two_and_no_other_run(tmp_path: Path) -> None:
    def refuse(hook_input: dict[str, Any]) -> Output:
        return {"decision": "block", "reason": "no touching"}

    recorder = Recorder(PreToolUse=refuse)
    journal = MemoryJournal()
    hooks = {"PreToolUse": [HookCallback(recorder, matcher="Bash")]}
    async with Session(
        **make_options(tmp_path, integrations=Integrations(hooks=hooks), journal=journal)
    ) as session:
        report = await session.run("D0")
    assert report.text == "end of 0"
    assert not (tmp_path / "made").exists()
    (hook_input,) = recorder.inputs
    assert (hook_input["agent_id"], hook_input["agent_type"]) == ("1.1.1.1.1", "general")
    assert hook_input["tool_input"] == {"command": "touch made"}
    (decision,) = [event for event in journal.events if isinstance(event, PermissionDecided)]
    assert (decision.run, decision.rule) == ("1.1.1.1.1", "hook:PreToolUse function")
    texts = [e.result.text for e in journal.events if isinstance(e, ToolCallFinished)]
    assert sum("no touching" in text for text in texts) == 1


async def test_children_begin_and_end_once_and_the_session_once(tmp_path: Path) -> None:
    recorder = Recorder()
    events = ("SessionStart", "SessionEnd", "SubagentStart", "SubagentStop", "Stop")
    async with Session(
        **make_options(tmp_path, integrations=Integrations(hooks=recorder.on(*events)))
    ) as session:
        await session.run("D0")
    assert recorder.list_events() == [
        "SessionStart",
        "SubagentStart",
        "SubagentStart",
        "SubagentStop",
        "SubagentStop",
        "Stop",
        "SessionEnd",
    ]


@pytest.mark.parametrize("event", ["Stop", "SubagentStop"])
async def test_a_run_continues_at_most_eight_times(tmp_path: Path, event: str) -> None:
    recorder = Recorder(**{event: {"decision": "block", "reason": "more"}})
    options = make_options(tmp_path, integrations=Integrations(hooks=recorder.on(event)))
    options["model"] = ScriptedModel(lambda request: f"answer {request.turn}")
    async with Session(**options) as session:
        report = await (session.run("go") if event == "Stop" else session.task("go"))
    assert (report.text, report.reason) == ("answer 8", Reason.GOAL)
    flags = [each["stop_hook_active"] for each in recorder.inputs]
    assert flags == [False, *[True] * 8]


async def test_a_budget_ends_a_run_that_hooks_continue(tmp_path: Path) -> None:
    recorder = Recorder(SubagentStop={"decision": "block", "reason": "more"})
    options = make_options(tmp_path, integrations=Integrations(hooks=recorder.on("SubagentStop")))
    options["model"] = ScriptedModel(lambda request: f"answer {request.turn}")
    async with Session(**options, children=Children(turns=2)) as session:
        report = await session.task("go")
    assert report.reason is Reason.MAX_TURNS
    assert [each["reason"] for each in recorder.inputs] == ["GOAL", "GOAL", "MAX_TURNS"]


async def test_a_prompt_that_a_hook_refuses_costs_no_request(tmp_path: Path) -> None:
    def refuse_secrets(hook_input: dict[str, Any]) -> Output:
        if "secret" in hook_input["prompt"]:
            return {"decision": "block", "reason": "it has a secret"}
        return None

    recorder = Recorder(UserPromptSubmit=refuse_secrets)
    options = make_options(
        tmp_path, integrations=Integrations(hooks=recorder.on("UserPromptSubmit"))
    )
    options["model"] = model = ScriptedModel(["fine"])
    async with Session(**options) as session:
        report = await session.run("a secret")
        assert report.error == "a hook refused the prompt: it has a secret"
        assert (await session.run("a question")).text == "fine"
    (request,) = model.requests
    assert "secret" not in str(request.messages)


@pytest.mark.parametrize("blocks", [False, True])
async def test_a_function_that_fails_or_waits_blocks_if_it_must_succeed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, blocks: bool
) -> None:
    async def fail(hook_input: dict[str, Any]) -> Output:
        raise ValueError("no such file")

    async def wait(hook_input: dict[str, Any]) -> Output:
        await asyncio.Event().wait()

    hooks = {"PreToolUse": [fail, HookCallback(wait, timeout=0.01, blocks_on_failure=blocks)]}
    async with Session(**make_options(tmp_path, integrations=Integrations(hooks=hooks))) as session:
        await session.run("D2")
    assert (tmp_path / "made").exists() is not blocks
    assert "ValueError: no such file" in caplog.text
    assert "did not end within 0.01 s" in caplog.text


async def test_a_changed_input_and_a_changed_output_are_used(tmp_path: Path) -> None:
    recorder = Recorder(
        PreToolUse={"hookSpecificOutput": {"updatedInput": {"command": "echo 1"}}},
        PostToolUse={"hookSpecificOutput": {"updatedToolOutput": {"stdout": "two"}}},
    )
    options = make_options(
        tmp_path, integrations=Integrations(hooks=recorder.on("PreToolUse", "PostToolUse"))
    )
    journal = options["journal"] = MemoryJournal()
    async with Session(**options) as session:
        await session.run("D2")
    assert recorder.inputs[1]["tool_response"]["stdout"] == "1"
    (result,) = [e.result for e in journal.events if isinstance(e, ToolCallFinished)]
    assert result.text == "two"


async def test_an_unknown_event_is_named_and_objects_stay_alone(tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(UnknownName, match="PreToolUse"):
        async with Session(
            **make_options(tmp_path, integrations=Integrations(hooks=recorder.on("PreToolUses")))
        ):
            pass
    spec = HookSpec(event="Stop", kind="command", origin="x", scope="user", command="true")
    with pytest.raises(UsageError, match="cannot be used together"):
        async with Session(
            **make_options(tmp_path, integrations=Integrations(hooks=Hooks(), hook_programs=[spec]))
        ):
            pass


async def test_text_of_hooks_is_in_the_ledger_and_a_long_one_in_a_file(tmp_path: Path) -> None:
    def add(hook_input: dict[str, Any]) -> Output:
        return {"hookSpecificOutput": {"additionalContext": "x" * 30_000}}

    recorder = Recorder(UserPromptSubmit=add, PostToolUse=add)
    options = make_options(
        tmp_path, integrations=Integrations(hooks=recorder.on("UserPromptSubmit", "PostToolUse"))
    )
    journal = options["journal"] = MemoryJournal()
    async with Session(**options) as session:
        await session.run("D2")
    ledger = Ledger.from_events(journal.events)
    assert 19_000 < ledger.hook_bytes <= 20_000
    assert "Hooks added" in describe_ledger(ledger)
    files = list((tmp_path / "home" / "spills").rglob("hook-*.txt"))
    assert len(files) == 2
    assert all(file.read_text().endswith("x" * 30_000) for file in files)


async def test_hooks_of_the_session_run_again_after_a_summary(tmp_path: Path) -> None:
    added = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "rules"}}
    recorder = Recorder(SessionStart=added)
    options = make_options(tmp_path, integrations=Integrations(hooks=recorder.on("SessionStart")))
    options["model"] = model = ScriptedModel(lambda request: f"answer {request.turn}")
    async with Session(**options) as session:
        for prompt in ("one", "two"):
            await session.run(prompt)
        assert (await session.compact()).ok
        await session.run("three")
        await session.run("four")
    assert [each["source"] for each in recorder.inputs] == ["startup", "compact"]
    prompts = [
        str(request.messages[-1]).count("[hook SessionStart] rules") for request in model.requests
    ]
    assert prompts == [1, 0, 0, 1, 0]
