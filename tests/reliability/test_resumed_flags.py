"""Flags of a command line that is killed: `mudroom resume` works as it did, without naming them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from mudroom import ToolCallBlock
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._cli.commands.root import root_command
from mudroom._core.events import RunStarted, SessionOpened
from mudroom._session.config import Settings
from mudroom._session.recorded_options import OF_PROCESS, RESTORED, RESTORED_OTHERWISE
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from .command_line import MODEL, run
from .conftest import CheckRecord
from .test_signals import read_last_record

CODER = {"coder": {"description": "Works.", "prompt": "You code.", "claims": True}}
OTHER_FLAGS = {
    *("words", "print_prompt", "version", "verbose", "quiet", "no_color", "screen_reader"),
    *("continue_last", "resume", "fork", "session_id", "name", "skip_permissions", "help"),
}
"""Flags that say what this process does and shows, or which session it continues."""
OF_PROCESS_FLAGS = {
    *("output_format", "json_schema", "trust", "trace", "annotate", "plugin_dirs"),
    "strict_merges",
}
RENAMED = {
    "max_turns": "prompt_budget",
    "max_minutes": "prompt_budget",
    "max_tokens": "prompt_budget",
    "max_budget_usd": "prompt_budget",
    "allowed_tools": "permissions",
    "disallowed_tools": "permissions",
    "permission_mode": "prompt_budget",  # it is in the brief, too
}


def test_each_flag_is_restored_or_belongs_to_its_process() -> None:
    classified = {*RESTORED, *RESTORED_OTHERWISE, *OF_PROCESS}
    for parameter in root_command.params:
        name = str(parameter.name)
        if name in OTHER_FLAGS or name in OF_PROCESS_FLAGS or not parameter.expose_value:
            continue
        assert RENAMED.get(name, name) in classified, f"what becomes of {name} after a resume?"
    assert {*Settings.__struct_fields__} >= OF_PROCESS_FLAGS


async def test_the_flags_of_a_killed_command_line_hold_after_a_resume(
    tmp_path: Path, check_record: CheckRecord
) -> None:
    outside = tmp_path / "outside.txt"
    hung = False
    is_released = False

    def answer(request: ServerRequest) -> ServerAnswer:
        nonlocal hung
        if "You code." not in str(request.body):
            if request.turn == 0:
                return (ToolCallBlock("t", "task", {"prompt": "CHILD", "agent": "coder"}),)
            if request.turn == 1:
                again = {"prompt": "AGAIN", "agent": "coder", "name": "ann"}
                return (ToolCallBlock("t2", "task", again),)
            return "all is done"
        if request.turn == 0 and b"CHILD" in request.body:
            if not is_released:
                hung = True
                return Fault(delay=60)
            commands = [f"echo x >> {outside}", "git push origin main"]
            return tuple(
                ToolCallBlock(f"b{n}", "bash", {"command": command})
                for n, command in enumerate(commands)
            )
        return "the coder is done"

    async with ModelServer(answer) as server:
        words = ("-p", "P", "--agents", json.dumps(CODER), "--sandbox", "off", *MODEL)
        flags = ("--permission-mode", "bypassPermissions", "--disallowed-tools", "Bash(git push:*)")
        more = ("--max-children", "2", "--worker", "process:1", "--max-output-tokens", "999")
        killed = await run(
            tmp_path, server.url, *words, *flags, *more, until=lambda: hung, by=[signal.SIGKILL]
        )
        assert killed[0] == -signal.SIGKILL
        is_released = True
        resumed = await run(tmp_path, server.url, "resume")
    assert (resumed[0], resumed[1]) == (0, "all is done\n"), resumed
    assert "as when this session was started: --sandbox off" in resumed[2]
    assert outside.read_text() == "x\n"
    events = list(open_reader(read_last_record(tmp_path)).read())
    first, second = [event.options for event in events if isinstance(event, SessionOpened)]
    assert first == second and first
    assert {"agents", "sandbox", "permissions", "max_children", "worker"} <= first.keys()
    agents = [event.brief.agent.name for event in events if isinstance(event, RunStarted)]
    assert agents.count("coder") == 2
    results = str(events)
    assert "git push" in results and "deny Bash(git push:*)" in results.replace("bash(", "Bash(")
    await check_record(events)


async def test_a_claiming_agent_of_a_flag_takes_the_other_tasks_after_a_kill(
    tmp_path: Path,
) -> None:
    hung = False
    is_released = False

    def answer(request: ServerRequest) -> ServerAnswer:
        nonlocal hung
        if "You code." not in str(request.body):
            start = {"prompt": "WORK", "agent": "coder", "name": "ann", "background": True}
            return "none is left" if request.turn else (ToolCallBlock("t", "task", start),)
        if "Task #1" in str(request.body) and not is_released:
            hung = True
            return Fault(delay=60)
        return "the task is done"

    async with ModelServer(answer) as server:
        for name in ("one", "two", "three"):
            assert (await run(tmp_path, server.url, "board", "add", name))[0] == 0
        words = ("-p", "P", "--agents", json.dumps(CODER), *MODEL)
        await run(tmp_path, server.url, *words, until=lambda: hung, by=[signal.SIGKILL])
        is_released = True
        resumed = await run(tmp_path, server.url, "resume", "--last")
        assert resumed[0] == 0, resumed
        listed = await run(tmp_path, server.url, "board", "list", "--json")
    statuses = [task["status"] for task in json.loads(listed[1])]
    assert statuses == ["completed"] * 3, listed
