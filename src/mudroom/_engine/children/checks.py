"""Checks of merged files, each run once per tree, and decisions on merges and checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from stat import S_ISLNK

from ..._core.events import CheckFinished, CheckStarted, PermissionDecided
from ..._core.listings import count_noun
from ..._core.messages import ToolCallBlock
from ..._core.ports import (
    MERGE,
    ApprovalDecision,
    ApprovalRequest,
    FileTrees,
    MergedFile,
    MergePlan,
    PermissionVerdict,
)
from ..._core.runs import Check
from ..._core.tools import PreviewLine, ToolCategory
from ..._platform.regular_files import is_binary
from ..._projections.differences import diff_texts
from ..._projections.engine_text import quote
from ..._projections.safe_text import sanitize
from ...errors import UsageError, WorkspaceError
from ..call_context import CallContext
from ..run_context import RunContext
from ..session_context import CHECK

_BASH = "bash"  # its rules also apply to checks
_MAX_OUTPUT = 4_000  # characters at the end of the output that are recorded and shown to models
_MAX_BYTES = 64 << 10


async def run_check(
    run: RunContext, trees: FileTrees, check: Check, tree: str, children: tuple[str, ...] = ()
) -> CheckFinished:
    """Run a check on the files of a tree that includes the work of `children`.

    Each tree is checked only once. Raises WorkspaceError if no command can run.
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
    async with trees.open_tree(tree) as sandbox:
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

    The rules for commands apply. A check given by the user needs no confirmation. `purpose` is what
    the check decides, `call` the one that waits for it.
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


async def explain_failed_check(run: RunContext, check: Check) -> str:
    """Check the current files of a run that has reached its goal.

    Returns "" if the check succeeds, else why it fails.
    """
    if run.services.recorded_work:
        report = run.services.recorded_work.find_report(run.run_id)
        return report.error if report else ""
    trees = run.environment.trees
    if trees is None:
        return f"the check {check.command!r} needs a session that can isolate runs"
    with run.meter.pause():  # the check has its own time limit
        if refusal := await find_check_refusal(run, check, "the task is completed"):
            return f"the check {check.command!r} may not run: {refusal}"
        try:
            async with trees.lock:
                tree = await asyncio.to_thread(trees.store_files)
            result = await run_check(run, trees, check, tree)
        except (UsageError, WorkspaceError) as error:
            return f"the check {check.command!r} did not run: {error}"
    return "" if result.is_green else f"a check failed: {describe_check(result)}"


def describe_check(result: CheckFinished) -> str:
    ending = "timed out" if result.timed_out else f"exit code {result.exit_code}"
    output = quote(result.output) or "(no output)"
    return f"{quote(result.command)} ({ending}, {result.seconds:.1f} s):\n{output}"


_VERDICTS = ("deny", "ask", "allow")


async def decide(
    run: RunContext, name: str, verdict: PermissionVerdict, request: ApprovalRequest
) -> str:
    """Return why an act is not allowed, "" if it is; ask the user if the verdict says so.

    `name` is the act's name in the record.
    """
    decision = ApprovalDecision(False)
    if verdict.verdict == "ask":
        with run.meter.pause():
            decision = await run.services.approver.decide(request)
    event = run.recorder.make_event(
        PermissionDecided,
        call_id=request.call_id,
        name=name,
        verdict=verdict.verdict,
        allowed=decision.allowed,
        policy_reason=verdict.why,
        approver_reason=decision.why,
        rule=verdict.rule,
    )
    await run.recorder.record(event)
    if decision.allowed:
        return ""
    return decision.why or verdict.why or "the user said no"


async def find_merge_denial(context: CallContext, run_id: str, plan: MergePlan) -> str:
    """Return why the rules or the mode deny merging a run's work, "" if they do not."""
    if "write" not in context.run.services.toolbox:
        return "no file may be written in this session"
    verdict = _judge(context, plan)
    if verdict.verdict != "deny":
        return ""
    return await decide(context.run, MERGE, verdict, _make_request(context, run_id, plan))


async def ask_for_merge(
    context: CallContext, run_ids: str, plan: MergePlan, trees: FileTrees
) -> str:
    """Ask the user once for all files, if the rules say so. Return why not, "" if allowed."""
    verdict = _judge(context, plan)
    if verdict.verdict == "allow":
        return ""
    change = await asyncio.to_thread(preview_merge, plan, trees)
    return await decide(context.run, MERGE, verdict, _make_request(context, run_ids, plan, change))


def _judge(context: CallContext, plan: MergePlan) -> PermissionVerdict:
    """Return the strictest verdict on any file of a plan."""
    run = context.run
    tool = run.services.toolbox["write"]
    call = ToolCallBlock(context.call_id, MERGE, {})
    verdicts = [
        run.environment.policy.judge(call, tool, {"path": file.path, "content": ""}, run.brief)
        for file in plan.files
    ]
    allowed = PermissionVerdict("allow")
    return min(verdicts, key=lambda each: _VERDICTS.index(each.verdict), default=allowed)


def _make_request(
    context: CallContext, run_ids: str, plan: MergePlan, change: tuple[PreviewLine, ...] = ()
) -> ApprovalRequest:
    brief = context.run.brief
    paths = [file.path for file in plan.files]
    return ApprovalRequest(
        brief.run_id,
        brief.agent.name,
        MERGE,
        {"run": run_ids, "files": paths},
        f"{count_noun(len(paths), 'file')} of yours would change",
        context.call_id,
        category=ToolCategory.WRITE,
        name=brief.name,
        change=change,
    )


MAX_LINES = 400  # of differences; further files are only named
_MAX_SHOWN_BYTES = 1_000_000  # larger contents are not compared


def preview_merge(plan: MergePlan, trees: FileTrees) -> tuple[PreviewLine, ...]:
    """Return each file of a merge with its difference from the current content. Blocks."""
    lines: list[PreviewLine] = []
    for file in plan.files:
        difference = list(_compare(file, trees)) if len(lines) < MAX_LINES else []
        signs = [sign for sign, _ in difference]
        counts = f" (+{signs.count('+')} -{signs.count('-')})" if difference else ""
        lines.append(("", f"{_describe(file)}{counts}"))
        room = max(0, MAX_LINES - len(lines))
        lines += difference[:room]
        if len(difference) > room:
            lines.append(("", f"and {count_noun(len(difference) - room, 'more line')}"))
    return tuple(lines)


def _describe(file: MergedFile) -> str:
    kind = "link" if (S_ISLNK(file.mode) if file.after else file.was_link) else "file"
    if not file.before:
        return f"new {kind} {file.path}"
    if not file.after:
        return f"removed {kind} {file.path}"
    return f"link {file.path}" if kind == "link" or file.was_link else file.path


def _compare(file: MergedFile, trees: FileTrees) -> Iterator[PreviewLine]:
    before, after = trees.read(file.before), trees.read(file.after)
    if max(len(before), len(after)) > _MAX_SHOWN_BYTES or is_binary(before, after):
        yield ("", f"{len(before):,} bytes now, {len(after):,} bytes then")
        return
    yield from diff_texts(before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
