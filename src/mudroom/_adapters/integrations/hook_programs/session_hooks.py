"""The port Hooks, for hooks from settings files and the caller's functions."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ...._core.agents import Mode
from ...._core.events import AnyEvent, Delta, StoredEvent
from ...._core.messages import ToolCallBlock
from ...._core.ports import (
    HookCallback,
    HookFunction,
    Hooks,
    Journal,
    MessageHookDecision,
    ToolHookDecision,
)
from ...._core.ports.hooks import HOOKS_UNWATCHED
from ...._core.runs import Brief, Reason, Report, find_root_id
from ...._core.tools import ToolResult
from ...._platform.private_files import make_private_folder, make_spill_file
from ...._projections.claude import ClaudeTranscripts
from ....errors import StoppedByHook, UnknownName
from .events import RULES
from .hook_set import HookSet
from .outcome import NO_REASON, HookOutcome
from .remote_hooks import CallServerTool
from .run_log import HookRun, RunLog
from .spec import HookSpec
from .tool_shapes import (
    ToolInput,
    from_hook_input,
    read_hook_response,
    to_hook_input,
    to_hook_response,
)


class TranscriptFiles:
    """A session's transcript files, in a folder removed with it."""

    def __init__(self, session: str, folder: str, journal: Journal) -> None:
        self._fold = ClaudeTranscripts(session)
        self._folder = Path(folder, "transcripts")
        self._journal = journal
        self._new: list[StoredEvent] = []
        self._written: set[str] = set()

    def observe(self, event: AnyEvent) -> None:
        """Keep an event until the next hook runs: most events trigger none."""
        if not isinstance(event, Delta):
            self._new.append(event)

    async def load(self) -> None:
        self._new[:0] = [event async for event in self._journal.read(0)]

    def write(self, run_id: str) -> tuple[str, str]:
        """Write new events; return the paths of the conversation's and the run's transcripts."""
        for event in self._new:
            self._fold.apply(event)
        self._new.clear()
        for name, lines in self._fold.files.items():
            # Failing to write a transcript must not stop a run.
            with suppress(OSError):
                self._append(name, "".join(lines))
        self._fold.files.clear()
        return self._locate(""), self._locate(run_id)

    def _locate(self, run_id: str) -> str:
        return str(self._folder / self._fold.make_path(run_id))

    def _append(self, name: str, text: str) -> None:
        path = self._folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        if name not in self._written:
            make_private_folder(path.parent)
            flags |= os.O_TRUNC
            self._written.add(name)
        else:
            flags |= os.O_APPEND
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))


log = logging.getLogger("mudroom")

# How often in a row hooks may make a run continue after its final answer. Without a limit, a hook
# that always blocks would keep the run going forever.
MAX_BLOCKS = 8
_ENDING_SECONDS = 1.5  # a hook's time limit at the end of a cancelled run


class SessionFacts(Struct, frozen=True, kw_only=True):
    session: str
    folder: str
    spill_folder: str
    model: str  # model string of the root agent
    mode: Mode
    can_ask: bool  # there is an approver


class SessionHooks(Hooks):
    def __init__(
        self,
        hooks: HookSet,
        facts: SessionFacts,
        *,
        matches_rule: Callable[[str, ToolCallBlock], bool],
        transcripts: TranscriptFiles,
        run_log: RunLog,
    ) -> None:
        self._hooks = hooks
        self._facts = facts
        self._matches_rule = matches_rule
        self.transcripts = transcripts
        self._log = run_log
        self._starting: asyncio.Task[HookOutcome] | None = None
        self._awaits_compaction = False
        self._children: dict[str, str] = {}
        self._blocks: dict[str, int] = {}
        self._started_at: dict[tuple[str, str], float] = {}
        self._notifying: set[asyncio.Task[HookOutcome]] = set()

    async def on_session_start(self, source: str) -> None:
        if source in ("resume", "fork"):
            await self.transcripts.load()
        if source == "resume" and self._hooks.has("SubagentStop"):
            self._children = self._log.find_open_children(self._facts.session)
        self._begin(source)

    def _begin(self, source: str) -> None:
        """Start the SessionStart hooks; the next prompt waits for them and gets their text."""
        if not self._hooks.has("SessionStart"):
            return
        if self._starting:
            self._starting.cancel()
        self._starting = asyncio.create_task(self._fire_session_start(source))

    async def _fire_session_start(self, source: str) -> HookOutcome:
        return await self._fire("SessionStart", None, source=source, model=self._facts.model)

    async def on_session_end(self, reason: str) -> None:
        """Run the SubagentStop hooks for unfinished children, then the SessionEnd hooks."""
        tasks = [self._starting, *self._notifying]
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        for run_id, agent in list(self._children.items()):
            await self._end_child(run_id, agent, None, "", Reason.LOST)
        await self._fire("SessionEnd", None, reason=reason)
        await self._hooks.close()

    async def on_prompt(self, brief: Brief) -> str:
        """Run the UserPromptSubmit hooks, or the SubagentStart hooks for a program's task."""
        texts: list[str] = []
        if self._starting and not brief.depth:
            starting = self._starting
            self._starting = None
            outcome = await starting
            self._check_stop(outcome)
            texts.append(self._make_context("SessionStart", outcome))
        if self._awaits_compaction and not brief.depth:
            texts.append(await self.after_compaction(brief))
        if brief.depth:
            return await self.on_run_start(brief)
        outcome = await self._fire("UserPromptSubmit", brief, prompt=brief.prompt)
        self._check_stop(outcome)
        if outcome.decision == "deny":
            raise StoppedByHook(f"a hook refused the prompt: {outcome.reason}")
        texts.append(self._make_context("UserPromptSubmit", outcome))
        return "\n\n".join(filter(None, texts))

    async def on_message(self, brief: Brief, text: str) -> MessageHookDecision | None:
        outcome = await self._fire("UserPromptSubmit", brief, prompt=text)
        self._check_stop(outcome)
        if outcome.decision == "deny":
            log.warning("a hook refused your message: %s", outcome.reason or NO_REASON)
            return MessageHookDecision(denial=outcome.reason or NO_REASON)
        context = self._make_context("UserPromptSubmit", outcome)
        return MessageHookDecision(context=context) if context else None

    async def on_run_start(self, brief: Brief) -> str:
        """Run the SubagentStart hooks, unless an earlier process has done so."""
        if brief.run_id in self._children:
            return ""
        if self._hooks.has("SubagentStop"):
            self._children[brief.run_id] = brief.agent.name
        self._log_child("SubagentStart", brief.run_id, brief.agent.name)
        outcome = await self._fire("SubagentStart", brief)
        self._check_stop(outcome)
        return self._make_context("SubagentStart", outcome)

    async def on_run_end(self, brief: Brief, report: Report) -> None:
        """Run the SubagentStop or PostCompact hooks, unless they have run."""
        self._blocks.pop(brief.run_id, None)
        if brief.is_compaction:
            if report.ok:
                await self._fire_compaction("PostCompact", brief, compact_summary=report.text)
                if not brief.parent:
                    self._begin("compact")
        elif agent := self._children.get(brief.run_id):
            await self._end_child(brief.run_id, agent, brief, report.text, report.reason)

    async def _end_child(
        self, run_id: str, agent: str, brief: Brief | None, text: str, reason: Reason
    ) -> HookOutcome:
        """Run the SubagentStop hooks. `brief` is None for a child of an earlier process."""
        is_cut_off = reason in (Reason.CANCELLED, Reason.LOST)
        # If a hook blocks, the child continues and `_continue_run` adds it again.
        self._children.pop(run_id, None)
        self._log_child("SubagentStop", run_id, agent)
        return await self._fire(
            "SubagentStop",
            brief,
            seconds=_ENDING_SECONDS if is_cut_off else None,
            agent_id=run_id,
            agent_type=agent,
            agent_transcript_path=self.transcripts.write(run_id)[1],
            stop_hook_active=run_id in self._blocks,
            last_assistant_message=text,
            reason=reason.value,
        )

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Run the Stop or SubagentStop hooks; if one blocks, the run continues."""
        if brief.is_compaction:
            return ""
        if not brief.depth:
            outcome = await self._fire(
                "Stop",
                brief,
                stop_hook_active=brief.run_id in self._blocks,
                last_assistant_message=text,
                background_tasks=[],
                session_crons=[],
            )
        elif agent := self._children.get(brief.run_id):
            outcome = await self._end_child(brief.run_id, agent, brief, text, Reason.GOAL)
        else:
            return ""
        return self._continue_run(brief, outcome)

    def _continue_run(self, brief: Brief, outcome: HookOutcome) -> str:
        """Choose the text a run continues with; "" if it ends."""
        event = "SubagentStop" if brief.depth else "Stop"
        count = self._blocks.get(brief.run_id, 0)
        is_blocked = outcome.decision == "deny" and not outcome.stop and count < MAX_BLOCKS
        text = outcome.reason if is_blocked else outcome.context
        if outcome.stop or count >= MAX_BLOCKS or not text:
            return ""
        self._blocks[brief.run_id] = count + 1
        if brief.depth:
            self._children[brief.run_id] = brief.agent.name
        return self._cut_context(f"[hook {event}] {text}")

    async def explain_changes(self, brief: Brief) -> str:
        run_id = brief.run_id if brief.depth else ""
        return HOOKS_UNWATCHED if self._hooks.take_acted(run_id) else ""

    async def before_compaction(self, brief: Brief) -> str:
        outcome = await self._fire_compaction("PreCompact", brief, custom_instructions="")
        self._check_stop(outcome)
        if outcome.decision == "deny":
            raise StoppedByHook(f"a hook refused the compaction: {outcome.reason}")
        return self._make_context("PreCompact", outcome)

    async def after_compaction(self, brief: Brief) -> str:
        """Run the SessionStart hooks. If an interrupt stops them, the next prompt runs them."""
        if brief.depth or not self._hooks.has("SessionStart"):
            return ""
        self._awaits_compaction = True
        outcome = await self._fire_session_start("compact")
        self._awaits_compaction = False
        self._check_stop(outcome)
        return self._make_context("SessionStart", outcome)

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        self._started_at[brief.run_id, call.id] = time.monotonic()
        if not self._hooks.has("PreToolUse"):
            return None
        sent = to_hook_input(call, self._facts.folder)
        outcome = await self._fire_tool("PreToolUse", brief, call, sent)
        return self._to_decision("PreToolUse", call, sent, outcome)

    async def on_permission_request(
        self, brief: Brief, call: ToolCallBlock, why: str
    ) -> ToolHookDecision | None:
        """Run the PermissionRequest hooks; without a decision, those for Notification."""
        sent = to_hook_input(call, self._facts.folder)
        outcome = await self._fire_tool(
            "PermissionRequest", brief, call, sent, permission_suggestions=[]
        )
        decision = self._to_decision("PermissionRequest", call, sent, outcome)
        if decision is None and self._facts.can_ask and self._hooks.has("Notification"):
            notifying = self._fire(
                "Notification",
                brief,
                message=f"mudroom needs your permission to use {sent.name}",
                title="Permission needed",
                notification_type="permission_prompt",
            )
            task = asyncio.create_task(notifying)
            self._notifying.add(task)
            task.add_done_callback(self._notifying.discard)
        return decision

    async def on_permission_denied(self, brief: Brief, call: ToolCallBlock, why: str) -> None:
        sent = to_hook_input(call, self._facts.folder)
        await self._fire_tool("PermissionDenied", brief, call, sent, reason=why)

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        started_at = self._started_at.pop((brief.run_id, call.id), None)
        event = "PostToolUseFailure" if result.error else "PostToolUse"
        if not self._hooks.has(event):
            return None
        sent = to_hook_input(call, self._facts.folder)
        seconds = time.monotonic() - started_at if started_at else 0.0
        fields: dict[str, Any] = {"duration_ms": round(seconds * 1000)}
        if result.error:
            fields |= {"error": result.text, "is_interrupt": False}
        else:
            fields["tool_response"] = to_hook_response(sent, result)
        outcome = await self._fire_tool(event, brief, call, sent, **fields)
        changed = result
        if outcome.updated_output is not UNSET:
            changed = replace(changed, text=read_hook_response(outcome.updated_output))
        if context := self._make_context(event, outcome):
            changed = replace(changed, context=context)
        return None if changed is result else changed

    async def _fire_tool(
        self, event: str, brief: Brief, call: ToolCallBlock, sent: ToolInput, **further: Any
    ) -> HookOutcome:
        outcome = await self._fire(
            event,
            brief,
            call=call,
            tool_name=sent.name,
            tool_input=sent.arguments,
            tool_use_id=call.id,
            **further,
        )
        self._check_stop(outcome)
        return outcome

    async def _fire_compaction(self, event: str, brief: Brief, **further: Any) -> HookOutcome:
        trigger = "auto" if brief.parent else "manual"
        return await self._fire(event, brief, trigger=trigger, **further)

    async def _fire(
        self,
        event: str,
        brief: Brief | None,
        *,
        call: ToolCallBlock | None = None,
        seconds: float | None = None,
        **further: Any,
    ) -> HookOutcome:
        """Run an event's hooks; its brief is None if it concerns the session."""
        if not self._hooks.has(event):
            return HookOutcome()
        fields = self._make_fields(event, brief) | further
        return await self._hooks.fire(
            event,
            fields,
            matches_condition=(lambda rule: self._matches_rule(rule, call)) if call else None,
            seconds=seconds,
        )

    def _to_decision(
        self, event: str, call: ToolCallBlock, sent: ToolInput, outcome: HookOutcome
    ) -> ToolHookDecision | None:
        context = self._make_context(event, outcome)
        arguments = None
        if outcome.updated_input is not None and outcome.decision != "deny":
            arguments = from_hook_input(call, sent, outcome.updated_input)
        if not (outcome.decision or context or arguments is not None):
            return None
        if outcome.decision == "deny":
            return ToolHookDecision(
                denial=outcome.reason or NO_REASON, context=context, rule=outcome.origin
            )
        return ToolHookDecision(
            arguments=arguments,
            # A deferred call waits for an outside decision; here the approver makes it.
            verdict="ask" if outcome.decision == "defer" else outcome.decision,
            why=outcome.reason,
            context=context,
            rule=outcome.origin or f"hook:{event}",
        )

    def _make_fields(self, event: str, brief: Brief | None) -> dict[str, Any]:
        facts = self._facts
        run_id = brief.run_id if brief else ""
        fields: dict[str, Any] = {
            "session_id": facts.session,
            "transcript_path": self.transcripts.write(run_id)[0],
            "cwd": facts.folder,
            "hook_event_name": event,
        }
        if brief:
            fields["prompt_id"] = f"{facts.session}#{find_root_id(run_id)}"
            fields["permission_mode"] = brief.mode.limit_to(facts.mode).value
        if brief and brief.depth:
            fields |= {"agent_id": run_id, "agent_type": brief.agent.name}
        return fields

    def _log_child(self, event: str, run_id: str, agent: str) -> None:
        """Log the start or end of a child, so that a later process can end it for hooks."""
        if self._hooks.has("SubagentStop"):
            run = HookRun(at=time.time(), session=self._facts.session, event=event)
            self._log.append(replace(run, agent=run_id, agent_type=agent))

    def _make_context(self, event: str, outcome: HookOutcome) -> str:
        return self._cut_context(f"[hook {event}] {outcome.context}") if outcome.context else ""

    def _cut_context(self, text: str) -> str:
        return cut_hook_text(text, self._facts.spill_folder)

    def _check_stop(self, outcome: HookOutcome) -> None:
        if outcome.stop:
            raise StoppedByHook(f"a hook stopped the run: {outcome.stop}")


# Characters of a hook's text shown to the model; a file has all of it.
MAX_CONTEXT = 10_000


def cut_hook_text(text: str, spill_folder: str) -> str:
    """Cut a text to MAX_CONTEXT characters, saving all of it in a file."""
    if len(text) <= MAX_CONTEXT:
        return text
    path = make_spill_file(spill_folder, "hook")
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return f"{text[: MAX_CONTEXT - 200]}\n[… the whole text is in {path}]"


def open_session_hooks(
    specs: Sequence[HookSpec],
    functions: Mapping[str, Sequence[HookFunction | HookCallback]],
    facts: SessionFacts,
    matches_rule: Callable[[str, ToolCallBlock], bool],
    *,
    environ: Mapping[str, str],
    home: str,
    journal: Journal,
    call_tool: CallServerTool | None,
) -> SessionHooks:
    """Raise UnknownName for an event of the caller's functions that never fires here."""
    callbacks: dict[str, list[HookCallback]] = {}
    for event, entries in functions.items():
        if event not in RULES:
            raise UnknownName("hook event", event, RULES, where="Session")
        callbacks[event] = [
            entry if isinstance(entry, HookCallback) else HookCallback(entry) for entry in entries
        ]
    run_log = RunLog(home)
    hooks = HookSet(
        specs,
        callbacks,
        session=facts.session,
        folder=facts.folder,
        environ=environ,
        run_log=run_log,
        call_tool=call_tool or _refuse,
    )
    transcripts = TranscriptFiles(facts.session, facts.spill_folder, journal)
    return SessionHooks(
        hooks, facts, matches_rule=matches_rule, transcripts=transcripts, run_log=run_log
    )


async def _refuse(server: str, tool: str, arguments: dict[str, Any]) -> ToolResult:
    raise UnknownName("MCP server", server, ())
