"""Every event with every ending of a real program, and the limits of programs."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import is_alive, wait_until

from mudroom._adapters.integrations.hook_programs.events import RULES
from mudroom._adapters.integrations.hook_programs.hook_set import MAX_PROCESSES
from mudroom._adapters.integrations.hook_programs.outcome import HookOutcome
from mudroom._adapters.integrations.hook_programs.run_log import RunLog

from .hook_helpers import make_set, make_spec

BLOCKING = {
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "Stop",
    "SubagentStop",
    "PreCompact",
}
ADDING = {"SessionStart", "UserPromptSubmit"}
AFTER_TOOLS = {"PostToolUse", "PostToolUseFailure"}

ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("echo some text", {}),
    "JSON": ("""echo '{"systemMessage": "hello"}'""", {}),
    "exit 2": ("echo the reason >&2; exit 2", {}),
    "exit 1": ("echo broken >&2; exit 1", {}),
    "time-out": ("sleep 60", {"timeout": 0.1}),
    "not found": ("/nonexistent/program", {"args": ()}),
    "killed": ("kill -9 $$", {}),
    "no JSON": ("echo '{broken'", {}),
    "5 MB": ("head -c 5000000 /dev/zero | tr '\\0' x", {}),
}


def check(ending: str, event: str, outcome: HookOutcome) -> None:
    """Check the outcome of an ending; a failed hook has no decision."""
    if ending == "exit 2":
        assert outcome.decision == ("deny" if event in BLOCKING else "")
        assert outcome.reason == ("the reason" if event in BLOCKING else "")
        assert outcome.context == ("the reason" if event in AFTER_TOOLS else "")
        return
    assert (outcome.decision, outcome.stop) == ("", "")
    assert outcome.message == ("hello" if ending == "JSON" else "")
    texts = {"text": "some text", "5 MB": "x" * 5_000_000}
    expected = texts.get(ending, "") if event in ADDING else ""
    assert outcome.context == expected


FAILURES = {
    "exit 1": "it ended with exit code 1: broken",
    "time-out": "it did not end within 0.1 s",
    "not found": "it cannot be started",
    "killed": "it ended with exit code -9",
    "no JSON": "is no JSON object",
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_each_event_has_an_outcome_for_each_ending(
    tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    command, fields = ENDINGS[ending]
    hooks = make_set(tmp_path, *(make_spec(event, command, **fields) for event in RULES))
    outcomes = await asyncio.gather(
        *(hooks.fire(event, {"hook_event_name": event}) for event in RULES)
    )
    await hooks.close()
    for event, outcome in zip(RULES, outcomes, strict=True):
        check(ending, event, outcome)
    failed = [text for text in caplog.messages if text.startswith("A hook failed")]
    powerless = len(RULES) - len(BLOCKING) - len(AFTER_TOOLS)
    expected = {"exit 2": powerless}.get(ending, len(RULES) if ending in FAILURES else 0)
    assert len(failed) == expected
    assert all(FAILURES.get(ending, "which cannot block") in text for text in failed)


async def test_grandchildren_end_with_the_time_of_a_hook(tmp_path: Path) -> None:
    command = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    hooks = make_set(tmp_path, make_spec("PreToolUse", command, timeout=1.5))
    await hooks.fire("PreToolUse", {})
    pid = int((tmp_path / "pid").read_text())
    await wait_until(lambda: not is_alive(pid))
    await hooks.close()


async def test_a_cancelled_hook_ends_at_once_with_its_processes(tmp_path: Path) -> None:
    command = f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 60"
    hooks = make_set(tmp_path, make_spec("PreToolUse", command))
    task = asyncio.create_task(hooks.fire("PreToolUse", {}))
    await wait_until((tmp_path / "pid").exists)
    started_at = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started_at < 50
    await wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))
    await hooks.close()


async def test_a_process_that_keeps_the_pipes_does_not_delay_the_end(tmp_path: Path) -> None:
    command = f"sleep 60 & echo $! > {tmp_path}/pid; echo done"
    hooks = make_set(tmp_path, make_spec("UserPromptSubmit", command))
    started_at = time.monotonic()
    outcome = await hooks.fire("UserPromptSubmit", {})
    assert outcome.context == "done"
    assert time.monotonic() - started_at < 50
    os.kill(int((tmp_path / "pid").read_text()), 9)
    await hooks.close()


async def test_a_hundred_hooks_run_at_once_and_no_more_than_the_limit(tmp_path: Path) -> None:
    """Each program waits until as many as the limit have begun: so that many run at once."""
    command = (
        f"mkdir -p {tmp_path}/begun; touch {tmp_path}/begun/$$;"
        f" until [ $(ls {tmp_path}/begun | wc -l) -ge {MAX_PROCESSES} ]; do sleep 0.05; done"
    )
    specs = [make_spec("PreToolUse", f"{command}; : {number}") for number in range(40)]
    hooks = make_set(tmp_path, *specs)
    await hooks.fire("PreToolUse", {})
    await hooks.close()
    assert len(list((tmp_path / "begun").iterdir())) == 40
    assert all(run.ending == "exit code 0" for run in RunLog(str(tmp_path / "home")).read())


async def test_identical_hooks_run_once_and_others_once_a_session(tmp_path: Path) -> None:
    command = f"echo x >> {tmp_path}/log"
    twice = [make_spec("PreToolUse", command), make_spec("PreToolUse", command)]
    once = make_spec("PreToolUse", f"echo y >> {tmp_path}/log", once=True)
    hooks = make_set(tmp_path, *twice, once)
    for _ in range(2):
        await hooks.fire("PreToolUse", {})
    await hooks.close()
    assert sorted((tmp_path / "log").read_text().split()) == ["x", "x", "y"]


async def test_the_run_does_not_wait_for_a_hook_in_the_background(tmp_path: Path) -> None:
    command = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; touch {tmp_path}/done"
    hooks = make_set(tmp_path, make_spec("PostToolUse", command, in_background=True))
    assert await hooks.fire("PostToolUse", {}) == HookOutcome()
    (tmp_path / "go").touch()
    await wait_until((tmp_path / "done").exists)
    await hooks.close()


@pytest.mark.parametrize("line", ['{"async": true}\\n', ' {"asyncTimeout": 60000, "async": true}'])
async def test_the_run_does_not_wait_for_a_program_that_goes_to_the_background(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its later output has no effect, like that of a hook that begins in the background."""
    command = (
        f"printf '{line}'; until [ -e {tmp_path}/go ]; do sleep 0.05; done;"
        f""" echo '{{"decision": "block"}}'; touch {tmp_path}/done"""
    )
    hooks = make_set(tmp_path, make_spec("PreToolUse", command))
    assert await hooks.fire("PreToolUse", {}) == HookOutcome()
    (tmp_path / "go").touch()
    await wait_until((tmp_path / "done").exists)
    await wait_until(lambda: [*RunLog(str(tmp_path / "home")).read()])
    await hooks.close()
    assert [run.ending for run in RunLog(str(tmp_path / "home")).read()] == ["exit code 0"]
    assert caplog.messages == []


async def test_a_program_in_the_background_has_the_time_that_it_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = """echo '{"async": true, "asyncTimeout": 100}'; sleep 60"""
    hooks = make_set(tmp_path, make_spec("Stop", command))
    assert await hooks.fire("Stop", {}) == HookOutcome()
    await wait_until(lambda: caplog.messages)
    assert "it did not end within 0.1 s" in caplog.messages[0]
    await hooks.close()


async def test_a_program_in_the_background_ends_with_the_session(tmp_path: Path) -> None:
    command = f"""echo $$ > {tmp_path}/pid; echo '{{"async": true}}'; sleep 60"""
    hooks = make_set(tmp_path, make_spec("Stop", command))
    await hooks.fire("Stop", {})
    pid = int((tmp_path / "pid").read_text())
    assert is_alive(pid)
    await hooks.close()
    await wait_until(lambda: not is_alive(pid))


async def test_a_program_gets_input_folder_and_variables(tmp_path: Path) -> None:
    program = 'cat > input; echo "$CLAUDE_PROJECT_DIR $PWD ${OTEL_X:-none} $1" > facts'
    spec = make_spec("PreToolUse", "/bin/sh", args=("-c", program, "name", "one argument"))
    hooks = make_set(tmp_path, spec, environ={"OTEL_X": "secret"})
    fields = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"a": "é" * 90000},
    }
    await hooks.fire("PreToolUse", fields)
    await hooks.close()
    assert json.loads((tmp_path / "input").read_text()) == fields
    assert (tmp_path / "facts").read_text() == f"{tmp_path} {tmp_path} none one argument\n"


async def test_the_strictest_decision_counts_and_contexts_are_joined(tmp_path: Path) -> None:
    def decide(decision: str) -> str:
        own = {"permissionDecision": decision, "additionalContext": f"said {decision}"}
        return f"echo '{json.dumps({'hookSpecificOutput': own})}'"

    cases = (["allow"], ["ask", "allow"], ["ask", "defer", "allow"], ["allow", "deny", "defer"])
    for decisions in cases:
        specs = [make_spec("PreToolUse", decide(each)) for each in decisions]
        hooks = make_set(tmp_path, *specs)
        outcome = await hooks.fire("PreToolUse", {})
        await hooks.close()
        order = ["deny", "defer", "ask", "allow"]
        assert outcome.decision == min(decisions, key=order.index)
        assert outcome.context == "\n".join(f"said {each}" for each in decisions)
