"""Lines that are no plain prompt: commands of files and servers, and the user's shell commands."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..._projections.engine_text import quote, wrap
from ..._projections.safe_text import sanitize
from ..actions.load_permissions import load_permissions
from ..actions.prompt_calls import (
    FilledPrompt,
    PromptCall,
    ShellEscape,
    fill_call,
    make_call,
    make_filled,
    run_forked,
)
from ..actions.prompt_files import PromptFile
from ..actions.prompts import fetch_prompt
from ..output.text import Line

if TYPE_CHECKING:
    from .conversation import Conversation


async def run_prompt_file(conversation: Conversation, file: PromptFile, arguments: str) -> None:
    """Send the prompt of a file; one with `context: fork` is a child's task."""
    session = conversation.session
    settings = conversation.settings
    approvals = conversation.approvals
    trusted = approvals.trusted_prompts if approvals else ()
    approver = approvals.questions if approvals else None
    call = make_call(file, arguments, settings, session.cwd, trusted)
    conversation.print_text(f"Prompt of {file.source.path}", "dim")
    for notice in call.notices:
        conversation.print_text(notice, "yellow")
    permissions = load_permissions(settings, session.cwd, can_ask=True).permissions
    filled = await conversation.run_stoppable(
        fill_call(call, session, settings, permissions, approver)
    )
    if filled is None:
        return
    with approvals.allow(*call.rules) if approvals else nullcontext():
        if call.template.forks:
            await _run_fork(conversation, call, filled)
        else:
            await conversation.run_prompt(filled.line, filled)


async def _run_fork(conversation: Conversation, call: PromptCall, filled: FilledPrompt) -> None:
    """Give the prompt of a call to a child; its report is added to the next prompt."""
    report = await conversation.run_stoppable(
        run_forked(
            call, filled, conversation.session, conversation.settings, conversation.print_note
        )
    )
    if report is None:
        return
    conversation.ui.scrollback.write_text(sanitize(report.text))
    conversation.add_to_prompt(wrap("command", quote(report.text), name=call.file.name))
    conversation.print_ending(report)


async def run_server_prompt(conversation: Conversation, name: str, arguments: str) -> bool:
    """Send the prompt of a server. Return False if there is none of this name."""
    session = conversation.session
    if not session.mcp.servers:
        return False
    fetched = await conversation.run_stoppable(fetch_prompt(session, name, arguments))
    if fetched is None:
        # Stopped by the user, if the name can only be a server's.
        return name.startswith("/mcp__")
    filled = make_filled(fetched)
    await conversation.run_prompt(filled.line, filled)
    return True


async def run_shell_line(conversation: Conversation, command: str) -> None:
    """Run a shell command; its output is added to the next prompt."""
    if not command:
        return
    shell = ShellEscape(conversation.session, conversation.settings.home)
    text = await conversation.run_stoppable(shell.run(command))
    text = "(interrupted)" if text is None else text
    conversation.add_to_prompt(wrap("shell", f"$ {command}\n{quote(text)}"))
    rows: list[Line] = [[(f"  {sanitize(row)}", "dim")] for row in text.splitlines()]
    conversation.ui.scrollback.write_lines(*rows, [("", "")])


# Slash commands of other programs, with the nearest thing that mudroom has.
_COMMANDS = {
    "/add-dir": "mudroom works in one folder: start it with mudroom -C DIR.",
    "/approvals /allowed-tools": "Use /permissions to see the rules, /mode to change the mode.",
    "/background /bg": "Press Ctrl+B: what the model waits for goes to the background.",
    "/bashes": "Use /runs to list runs and background commands.",
    "/branch /fork": "Leave, then copy the session: mudroom --resume ID --fork-session.",
    "/bug /feedback": "Use mudroom doctor to check your setup.",
    "/checkpoint /restore /redo": "Use /rewind to return to an earlier prompt.",
    "/config /settings": "Leave, then use mudroom config. The settings file can also be edited.",
    "/editor /edit": "Press Ctrl+G to edit the line in $EDITOR.",
    "/effort /think /reasoning": "There is no such setting. Use /model to choose a model.",
    "/hooks": "Leave, then use mudroom hooks.",
    "/ide /terminal-setup": "There is no editor integration. Ctrl+J adds a line everywhere.",
    "/image": "Write the path of the image in your prompt, or @PATH.",
    "/login /logout /auth /connect": "Keys are environment variables: see mudroom models.",
    "/mcp /tools": "Leave, then use mudroom mcp. /context lists the tools.",
    "/plugin /plugins /extensions": "Leave, then use mudroom plugins.",
    "/memory /remember": "Write rules into AGENTS.md (/init), or keep one with /pin.",
    "/models": "Use /model.",
    "/plan": "Use /mode plan.",
    "/release-notes /update /upgrade": "Update mudroom with the program that installed it.",
    "/reset": "Use /clear.",
    "/review /security-review /pr-comments": "Write a prompt into .claude/commands/NAME.md; "
    "/NAME then sends it.",
    "/sessions /chat /continue /history": "Use /resume to continue another session.",
    "/share": "Use /export FILE.html.",
    "/stats /insights": "Use /cost or /view.",
    "/status": "The line below the prompt shows the state. Use /cost, /context or /doctor.",
    "/statusline": "Leave, then: mudroom config set status_line COMMAND",
    "/summarize /compress": "Use /compact.",
    "/themes /color": "Use /theme.",
    "/vi": "Use /vim.",
    "/todos": "Use /runs to list the runs.",
    "/worktree": "Start mudroom in the worktree: mudroom -C DIR.",
}
NEAREST_COMMANDS = {name: text for names, text in _COMMANDS.items() for name in names.split()}
