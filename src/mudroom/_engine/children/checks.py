"""Checks of merged files: a command in a sandbox with the files of a tree, once for each tree."""

from __future__ import annotations

import asyncio
import time

from ..._core.checks import CHECK
from ..._core.events import CheckFinished, CheckStarted
from ..._core.messages import ToolCallBlock
from ..._core.ports import ApprovalRequest, Isolation
from ..._core.runs import Check
from ..._core.tools import ToolCategory
from ..._projections.engine_text import quote
from ..._projections.safe_text import sanitize
from ...errors import UsageError, WorkspaceError
from ..run_context import RunContext
from .decisions import decide

_BASH = "bash"
"""Tool whose rules hold for checks."""

_MAX_OUTPUT = 4_000
"""Characters of the end of the output that the record and the models get."""
_MAX_BYTES = 64 << 10


async def run_check(
    run: RunContext, isolation: Isolation, check: Check, tree: str, children: tuple[str, ...] = ()
) -> CheckFinished:
    """Return the result of a check with the files of a tree. It runs once for each tree.

    Arguments:
        children: ids of the runs whose work is in the tree.

    Raises WorkspaceError if no command can run.
    """
    results = run.services.check_results
    past_events = run.services.past_events.get(run.run_id, ())
    if earlier := results.find(check.command, tree, past_events):
        return earlier
    facts = {"command": check.command, "tree": tree, "children": children}
    await run.recorder.record(run.recorder.make_event(CheckStarted, **facts))
    output = bytearray()

    def add(chunk: bytes) -> None:
        output.extend(chunk)
        del output[:-_MAX_BYTES]

    started_at = time.monotonic()
    async with isolation.open_tree(tree) as sandbox:
        ending = await sandbox.run(check.command, timeout=check.seconds, sink=add)
    text = sanitize(run.services.redact(output.decode("utf-8", "replace"))).strip()
    event = run.recorder.make_event(
        CheckFinished,
        **facts,
        exit_code=ending.code if ending.code >= 0 else 128 - ending.code,
        timed_out=ending.timed_out,
        seconds=round(time.monotonic() - started_at, 3),
        output=text[-_MAX_OUTPUT:],
    )
    await run.recorder.record(event)
    results.observe(event)
    return event


async def find_check_refusal(
    run: RunContext, check: Check, purpose: str, call: ToolCallBlock | None = None
) -> str:
    """Return why a check may not run, "" if it may. The user is asked at most once.

    A check is judged like a command. One that the user gave needs no confirmation.

    Arguments:
        purpose: what the check decides. call: the call that waits for it.
    """
    if run.services.check_results.is_allowed(check.command):
        return ""
    tool = run.services.toolbox.get(_BASH)
    if tool is None:
        return "no command may run in this session"
    call_id = call.id if call else ""
    command = ToolCallBlock(call_id, _BASH, {"command": check.command})
    verdict = run.environment.policy.judge(command, tool, command.arguments, run.brief)
    is_denied = verdict.verdict == "deny" and (verdict.rule or not check.is_from_user)
    if is_denied or (verdict.verdict == "ask" and not check.is_from_user):
        request = ApprovalRequest(
            run.run_id,
            run.brief.agent.name,
            _BASH,
            command.arguments,
            f"it decides whether {purpose}; {verdict.why}",
            call_id,
            verdict.command_part,
            ToolCategory.RUN,
        )
        if refusal := await decide(run, CHECK, verdict, request):
            return refusal
    run.services.check_results.allow(check.command)
    return ""


async def find_failed_check(run: RunContext) -> str:
    """Check the present files of a run that has reached its goal, if its brief has a check.

    Returns "" if the check succeeds, else why it does not.
    """
    check = run.brief.check
    if check is None:
        return ""
    if run.services.recorded_work:
        return run.services.recorded_work.find_error(run.run_id)
    isolation = run.environment.isolation
    if isolation is None:
        return f"the check {check.command!r} needs a session that can isolate runs"
    with run.meter.pause():  # the check has its own time limit
        if refusal := await find_check_refusal(run, check, "the task is completed"):
            return f"the check {check.command!r} may not run: {refusal}"
        try:
            async with isolation.lock:
                tree = await asyncio.to_thread(isolation.store_files)
            result = await run_check(run, isolation, check, tree)
        except (UsageError, WorkspaceError) as error:
            return f"the check {check.command!r} did not run: {error}"
    return "" if result.is_green else f"a check failed: {describe_check(result)}"


def describe_check(result: CheckFinished) -> str:
    """Return the command of a check, how it ended, and the end of its output."""
    ending = "timed out" if result.timed_out else f"exit code {result.exit_code}"
    output = quote(result.output) or "(no output)"
    return f"{quote(result.command)} ({ending}, {result.seconds:.1f} s):\n{output}"
