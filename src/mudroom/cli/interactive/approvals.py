"""The person at the prompt answers: yes, yes for this session, or no and why. The whole of what is asked is shown."""

from __future__ import annotations

import asyncio
import os
import re

import msgspec
from msgspec.structs import replace

from ..._core.ports import ApprovalDecision, ApprovalRequest
from ...config import Settings
from ...permissions import trust
from ..actions.load_permissions import is_trusted
from ..output.text import sanitize_line
from .conversation import UI

_BRINGS = (".agents", ".claude", ".codex", ".gemini", ".opencode", ".qwen", ".goose", ".mcp.json")
YES, SESSION, NO = "yes", "session", "no"
_ASKED = [(YES, "yes"), (SESSION, "yes, and for this session"), (NO, "no")]
_STRETCH = re.compile(r" {24,}|\n{5,}")


class ApprovalPrompt:
    """The port Approver, over a face. Answers for the session are kept here and nowhere else."""

    def __init__(self, face: UI) -> None:
        self._face, self._turn_taking = face, asyncio.Lock()
        self._granted: set[str] = set()

    async def decide(self, question: ApprovalRequest) -> ApprovalDecision:
        """Ask, unless this was allowed for the session; one question after the other, since an answer may hold for the next."""
        async with self._turn_taking:
            return await self._decided(question)

    async def _decided(self, question: ApprovalRequest) -> ApprovalDecision:
        key = _key(question)
        if key in self._granted:
            return ApprovalDecision(True, "allowed for this session")
        self._face.scrollback.write_lines(
            *([(line, style)] for line, style in format_request(question))
        )
        said = await self._face.choose(
            f"May {sanitize_line(question.agent)} do this? Or type why not.", _ASKED, free_text=True
        )
        if said == SESSION:
            self._granted.add(key)
        if said in (YES, SESSION):
            return ApprovalDecision(
                True, "the person said yes" + (", for this session" if said == SESSION else "")
            )
        return ApprovalDecision(
            False, "the person said no" if said in (NO, None) else f"the person said no: {said}"
        )


async def ask_for_trust(face: UI, settings: Settings, cwd: str) -> Settings:
    """Ask once whether a folder that brings files for agents is trusted; the settings with what was said."""
    brought = [name for name in _BRINGS if os.path.exists(os.path.join(cwd, name))]
    if not brought or is_trusted(settings, cwd):
        return settings
    title = f"{os.path.realpath(cwd)} brings {', '.join(brought)}. Do you trust what is in it? Until you do, its agents may only read."
    items = [
        ("always", "yes, this folder is trusted from now on"),
        ("once", "yes, this once"),
        ("no", "no"),
    ]
    said = await face.choose(title, items)
    if said == "always":
        trust.trust_folder(settings.home, cwd)
    return replace(settings, trust=said in ("always", "once"))


def format_request(question: ApprovalRequest) -> list[tuple[str, str]]:
    """All of the question, as (line, style): who asks, why, and the whole of what would be done, with nothing hidden in it."""
    lines = [
        (
            f"{sanitize_line(question.agent)} (run {question.run_id}) asks for {sanitize_line(question.tool)}: {escape_hidden(question.why)}",
            "yellow",
        )
    ]
    given = question.arguments
    whole = (
        given["command"]
        if question.tool == "bash" and isinstance(given.get("command"), str)
        else _told(given)
    )
    lines += [(f"  {line}", "bold") for line in escape_hidden(whole).split("\n")]
    if question.part and question.part.strip() != whole.strip():
        lines.append((f"  because of: {escape_hidden(question.part)}", "dim"))
    return lines


def escape_hidden(text: str) -> str:
    """Text in which nothing hides: what is not printed is written as its number, long stretches of blanks are counted."""
    text = _STRETCH.sub(
        lambda found: f" [{len(found[0])} {'blanks' if found[0][0] == ' ' else 'empty lines'}] ",
        text,
    )
    return "".join(
        c if c.isprintable() or c == "\n" else f"\\u{{{ord(c):x}}}"
        for c in text.replace("\t", "    ")
    )


def _told(given: dict[str, object]) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in given.items()
    )


def _key(question: ApprovalRequest) -> str:
    """What a yes for the session is about: this very command; any edit of files; any use of another tool."""
    if question.tool == "bash":
        return f"bash {question.arguments.get('command')}"
    return "edits" if question.tool in ("write", "edit") else question.tool
