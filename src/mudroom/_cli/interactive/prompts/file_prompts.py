"""Prompts of files at the prompt: sent to the model, or given to a child."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

from ...._core.runs import Report
from ...._projections.engine_text import quote, wrap
from ...._projections.safe_text import sanitize
from ...._session.config import Settings
from ...._session.session import Session
from ...actions.load_permissions import load_permissions
from ...actions.prompts.prompt_calls import (
    FilledPrompt,
    PromptCall,
    fill_call,
    make_call,
    run_forked,
)
from ...actions.prompts.prompt_files import PromptFile
from ..questions.approvals import ApprovalPrompt
from ..ui import UI

T = TypeVar("T")


class PromptScreen(Protocol):
    """The parts of a conversation that prompts of files use."""

    session: Session
    approvals: ApprovalPrompt | None
    ui: UI

    @property
    def settings(self) -> Settings: ...

    def print_text(self, text: str, style: str = "") -> None: ...

    def print_note(self, note: str) -> None: ...

    def print_ending(self, report: Report) -> None: ...

    def add_to_prompt(self, text: str) -> None: ...

    async def run_stoppable(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await work that Esc stops; return None if it was stopped."""
        ...

    async def run_prompt(self, line: str, filled: FilledPrompt | None = None) -> None: ...


async def run_prompt_file(conversation: PromptScreen, file: PromptFile, arguments: str) -> None:
    """Send the prompt of a file; one with `context: fork` is a child's task."""
    session = conversation.session
    settings = conversation.settings
    approvals = conversation.approvals
    trusted = approvals.trusted_prompts if approvals else ()
    call = make_call(file, arguments, settings, session.cwd, trusted)
    conversation.print_text(f"Prompt of {file.source.path}", "dim")
    for notice in call.notices:
        conversation.print_text(notice, "yellow")
    permissions = load_permissions(settings, session.cwd, can_ask=True).permissions
    filled = await conversation.run_stoppable(
        fill_call(call, session, settings, permissions, approvals)
    )
    if filled is None:
        return
    with approvals.allow(*call.rules) if approvals else nullcontext():
        if call.template.forks:
            await _run_fork(conversation, call, filled)
        else:
            await conversation.run_prompt(filled.line, filled)


async def _run_fork(conversation: PromptScreen, call: PromptCall, filled: FilledPrompt) -> None:
    """Give the prompt of a call to a child; its report is added to the next prompt."""
    report = await conversation.run_stoppable(
        run_forked(
            call, filled, conversation.session, conversation.settings, conversation.print_note
        )
    )
    if report is None:
        return
    conversation.ui.scrollback.write_text(sanitize(report.text))
    conversation.add_to_prompt(wrap("command", quote(report.text), name=call.name))
    conversation.print_ending(report)
