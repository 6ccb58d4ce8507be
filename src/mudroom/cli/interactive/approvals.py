"""Permission prompts: the user approves a tool call, once or for the session, or denies it."""

from __future__ import annotations

import asyncio
import os
import re

import msgspec
from msgspec.structs import replace

from ..._core.ports import ApprovalDecision, ApprovalRequest
from ..._core.tools import ToolCategory
from ...config import Settings
from ...permissions import trust
from ...projections.safe_text import sanitize_line
from ..actions.load_permissions import is_trusted
from .conversation import QuestionUI

_AGENT_PATHS = (
    ".agents",
    ".claude",
    ".codex",
    ".gemini",
    ".opencode",
    ".qwen",
    ".goose",
    ".mcp.json",
)
"""Files and folders of a project that can configure agents."""

YES, SESSION, NO = "yes", "session", "no"
_OPTIONS = [(YES, "yes"), (SESSION, "yes, also for the rest of this session"), (NO, "no")]
_LONG_GAP = re.compile(r" {24,}|\n{5,}")


class ApprovalPrompt:
    """The port Approver, implemented by asking in a UI.

    Approvals for the session are kept in this object only.
    """

    def __init__(self, ui: QuestionUI) -> None:
        self._ui = ui
        self._lock = asyncio.Lock()
        self._granted: set[str] = set()

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Ask the user, unless the call was allowed for the session.

        Requests wait for one another, because an approval for the session can answer the next one.
        """
        async with self._lock:
            return await self._ask(request)

    async def _ask(self, request: ApprovalRequest) -> ApprovalDecision:
        key = _make_session_key(request)
        if key in self._granted:
            return ApprovalDecision(True, "allowed for this session")
        self._ui.scrollback.write_lines(
            *([(line, style)] for line, style in format_request(request))
        )
        decision = self._make_decision(key, await self._choose(request))
        verdict = "allowed" if decision.allowed else "denied"
        self._ui.scrollback.write_lines([(f"  {verdict}: {sanitize_line(decision.why)}", "dim")])
        return decision

    async def _choose(self, request: ApprovalRequest) -> str | None:
        return await self._ui.choose(
            f"Allow {sanitize_line(request.agent)} to do this? Or type why not.",
            _OPTIONS,
            free_text=True,
        )

    def _make_decision(self, key: str, choice: str | None) -> ApprovalDecision:
        """Return the decision of a choice; remember an approval for the session."""
        if choice == SESSION:
            self._granted.add(key)
            return ApprovalDecision(True, "the user said yes, for this session")
        if choice == YES:
            return ApprovalDecision(True, "the user said yes")
        if choice in (NO, None):
            return ApprovalDecision(False, "the user said no")
        return ApprovalDecision(False, f"the user said no: {choice}")


async def ask_for_trust(ui: QuestionUI, settings: Settings, cwd: str) -> Settings:
    """Ask whether to trust a folder that contains agent files; return the updated settings.

    The user is not asked if there are no such files, or if the folder is trusted already.
    """
    names = [name for name in _AGENT_PATHS if os.path.exists(os.path.join(cwd, name))]
    if not names or is_trusted(settings, cwd):
        return settings
    title = (
        f"{os.path.realpath(cwd)} contains {', '.join(names)}. Do you trust this folder? "
        "Until you do, its agents are read-only."
    )
    items = [
        ("always", "yes, always trust this folder"),
        (YES, "yes, this time only"),
        (NO, "no"),
    ]
    choice = await ui.choose(title, items)
    if choice == "always":
        trust.trust_folder(settings.home, cwd)
    return replace(settings, trust=choice in ("always", YES))


def format_request(request: ApprovalRequest) -> list[tuple[str, str]]:
    """Format a request as (line, style) pairs.

    The lines name the agent, the reason and the complete arguments; no character is hidden.
    """
    agent = sanitize_line(request.agent)
    tool = sanitize_line(request.tool)
    why = escape_hidden(request.why)
    lines = [(f"{agent} (run {request.run_id}) asks for {tool}: {why}", "yellow")]
    command = request.arguments.get("command")
    if request.category is ToolCategory.RUN and isinstance(command, str):
        call = command
    else:
        call = _format_arguments(request.arguments)
    lines += [(f"  {line}", "bold") for line in escape_hidden(call).split("\n")]
    if request.command_part and request.command_part.strip() != call.strip():
        lines.append((f"  needs approval: {escape_hidden(request.command_part)}", "dim"))
    return lines


def escape_hidden(text: str) -> str:
    """Make hidden text visible.

    Characters that are not printed become their code points; long runs of spaces or empty lines
    become a count.
    """

    def count_gap(match: re.Match[str]) -> str:
        kind = "blanks" if match[0][0] == " " else "empty lines"
        return f" [{len(match[0])} {kind}] "

    text = _LONG_GAP.sub(count_gap, text).replace("\t", "    ")
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{{{ord(c):x}}}" for c in text)


def _format_arguments(arguments: dict[str, object]) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in arguments.items()
    )


def _make_session_key(request: ApprovalRequest) -> str:
    """Return what an approval for the session covers.

    For a shell command this is the exact command, for a changed file all changes of files,
    otherwise the tool.
    """
    if request.category is ToolCategory.RUN:
        return f"{request.tool} {request.arguments.get('command')}"
    return "edits" if request.category is ToolCategory.WRITE else request.tool
