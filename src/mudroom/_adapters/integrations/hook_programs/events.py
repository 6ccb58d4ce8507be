"""Hook events: their names, their rules, and the matchers that select hooks."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from ...._platform.patterns import compile_later
from .spec import HookKind

# Events of Claude Code that never happen in mudroom, listed so that files using them get the right
# notice.
OTHER_EVENTS = (
    "PostToolBatch",
    "UserPromptExpansion",
    "StopFailure",
    "PreModelSwitch",
    "PostModelSwitch",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "MessageDisplay",
)
# Events only Codex has; they never happen in mudroom.
CODEX_EVENTS = ("Interrupt",)
# Gemini CLI's event -> Claude Code's, "" if it never happens in mudroom.
GEMINI_EVENTS = {
    "BeforeTool": "PreToolUse",
    "AfterTool": "PostToolUse",
    "BeforeAgent": "UserPromptSubmit",
    "AfterAgent": "Stop",
    "SessionStart": "SessionStart",
    "SessionEnd": "SessionEnd",
    "PreCompress": "PreCompact",
    "Notification": "Notification",
    "BeforeModel": "",
    "AfterModel": "",
    "BeforeToolSelection": "",
}
# The kinds of hooks mudroom runs.
RUN_KINDS: tuple[HookKind, ...] = ("command", "http", "mcp_tool")


def explain_never_fires(event: str, kind: HookKind) -> str:
    """Explain why a hook never runs, "" if it does."""
    if event not in RULES:
        return "the event never happens here"
    return "" if kind in RUN_KINDS else f"hooks of type {kind} are not run"


# Time limit of a program or address, if neither the hook nor the event sets one.
COMMAND_SECONDS = 600.0


class EventRule(Struct, frozen=True):
    subject: str = ""  # input field that matchers are compared with
    blocks: bool = False  # exit code 2 and the decision "block" affect the run
    adds_output: bool = False  # plain output is text for the model
    seconds: float = COMMAND_SECONDS


# The events that happen in mudroom, with their rules.
RULES = {
    "PreToolUse": EventRule("tool_name", blocks=True),
    "PostToolUse": EventRule("tool_name"),
    "PostToolUseFailure": EventRule("tool_name"),
    "PermissionRequest": EventRule("tool_name", blocks=True),
    "PermissionDenied": EventRule("tool_name"),
    "UserPromptSubmit": EventRule(blocks=True, adds_output=True, seconds=30.0),
    "SessionStart": EventRule("source", adds_output=True),
    "SessionEnd": EventRule("reason", seconds=1.5),
    "Stop": EventRule(blocks=True),
    "SubagentStart": EventRule("agent_type"),
    "SubagentStop": EventRule("agent_type", blocks=True),
    "PreCompact": EventRule("trigger", blocks=True),
    "PostCompact": EventRule("trigger"),
    "Notification": EventRule("notification_type"),
}
_NAMES = compile_later(r"[A-Za-z0-9_\- ,|]*")
# Former names of tools, which matchers may still use.
_OTHER_NAMES = {"Agent": "Task"}
# Syntax that Python lacks or reads differently, with a name for messages.
_UNKNOWN_HERE = (
    (compile_later(r"\\[pP]\{"), r"\p{...}"),
    (compile_later(r"\\u\{"), r"\u{...}"),
    (compile_later(r"\\c[A-Za-z]"), r"\cX"),
    (compile_later(r"\[\^?\](?!.*\])"), "[] or [^]"),
    (compile_later(r"\(\?P"), "(?P...), which JavaScript lacks"),
    (compile_later(r"\\[AZ]"), r"\A or \Z, which JavaScript lacks"),
)
# Characters; checking an expression takes the square of its length.
_MAX_LENGTH = 2_000


class Matcher(Struct, frozen=True):
    """A matcher from a settings file: exact names, a regular expression, or neither for all."""

    names: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    problem: str = ""  # why it cannot be used and so selects nothing

    def matches(self, name: str) -> bool:
        if self.problem:
            return False
        candidates = {name, _OTHER_NAMES.get(name, name)}
        if self.names is not None:
            return not self.names.isdisjoint(candidates)
        pattern = self.pattern
        return pattern is None or any(pattern.search(each) for each in candidates)


@lru_cache(maxsize=1024)
def parse_matcher(text: str) -> Matcher:
    """Parse a matcher. Never raises; see `Matcher.problem`."""
    if text in ("", "*"):
        return Matcher()
    if _NAMES.fullmatch(text):
        names = (name.strip() for name in re.split(r"[|,]", text))
        return Matcher(names=frozenset(filter(None, names)))
    if len(text) > _MAX_LENGTH:
        start = f"{text[:40]!r}…"
        return Matcher(problem=f"the matcher {start} has more than {_MAX_LENGTH:,} characters")
    for syntax, name in _UNKNOWN_HERE:
        if syntax.search(text):
            return Matcher(problem=f"the matcher {text!r} has {name}")
    try:
        return Matcher(pattern=re.compile(_translate(text)))
    except re.error as error:
        return Matcher(problem=f"the matcher {text!r} is no regular expression: {error}")


def _translate(text: str) -> str:
    # From JavaScript's syntax to Python's.
    text = re.sub(r"\(\?<(?![=!])", "(?P<", text)
    text = re.sub(r"\\k<(\w+)>", r"(?P=\1)", text)
    # In JavaScript, `$` does not match before a final line feed.
    return re.sub(r"(?<!\\)((?:\\\\)*)\$(?![^\[]*\])", r"\1\\Z", text)
