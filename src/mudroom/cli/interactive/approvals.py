"""The person at the prompt answers: yes, yes for this session, or no and why. The whole of what is asked is shown."""

from __future__ import annotations

import asyncio
import os
import re

import msgspec
from msgspec.structs import replace

from ..._core.ports import Answer, Question
from ...config import Settings
from ...permissions import trust
from ..actions.load_permissions import trusts
from ..output.text import one_line
from .conversation import Face

_BRINGS = (".agents", ".claude", ".codex", ".gemini", ".opencode", ".qwen", ".goose", ".mcp.json")
YES, SESSION, NO = "yes", "session", "no"
_ASKED = [(YES, "yes"), (SESSION, "yes, and for this session"), (NO, "no")]
_STRETCH = re.compile(r" {24,}|\n{5,}")


class Asked:
    """The port Approver, over a face. Answers for the session are kept here and nowhere else."""

    def __init__(self, face: Face) -> None:
        self._face, self._turn_taking = face, asyncio.Lock()
        self._granted: set[str] = set()

    async def decide(self, question: Question) -> Answer:
        """Ask, unless this was allowed for the session; one question after the other, since an answer may hold for the next."""
        async with self._turn_taking:
            return await self._decided(question)

    async def _decided(self, question: Question) -> Answer:
        key = _key(question)
        if key in self._granted:
            return Answer(True, "allowed for this session")
        self._face.paper.lines(*([(line, style)] for line, style in shown(question)))
        said = await self._face.choose(
            f"May {one_line(question.agent)} do this? Or type why not.", _ASKED, words=True
        )
        if said == SESSION:
            self._granted.add(key)
        if said in (YES, SESSION):
            return Answer(
                True, "the person said yes" + (", for this session" if said == SESSION else "")
            )
        return Answer(
            False, "the person said no" if said in (NO, None) else f"the person said no: {said}"
        )


async def introduced(face: Face, settings: Settings, cwd: str) -> Settings:
    """Ask once whether a folder that brings files for agents is trusted; the settings with what was said."""
    brought = [name for name in _BRINGS if os.path.exists(os.path.join(cwd, name))]
    if not brought or trusts(settings, cwd):
        return settings
    title = f"{os.path.realpath(cwd)} brings {', '.join(brought)}. Do you trust what is in it? Until you do, its agents may only read."
    items = [
        ("always", "yes, this folder is trusted from now on"),
        ("once", "yes, this once"),
        ("no", "no"),
    ]
    said = await face.choose(title, items)
    if said == "always":
        trust.add(settings.home, cwd)
    return replace(settings, trust=said in ("always", "once"))


def shown(question: Question) -> list[tuple[str, str]]:
    """All of the question, as (line, style): who asks, why, and the whole of what would be done, with nothing hidden in it."""
    lines = [
        (
            f"{one_line(question.agent)} (run {question.run_id}) asks for {one_line(question.tool)}: {visible(question.why)}",
            "yellow",
        )
    ]
    given = question.arguments
    whole = (
        given["command"]
        if question.tool == "bash" and isinstance(given.get("command"), str)
        else _told(given)
    )
    lines += [(f"  {line}", "bold") for line in visible(whole).split("\n")]
    if question.part and question.part.strip() != whole.strip():
        lines.append((f"  because of: {visible(question.part)}", "dim"))
    return lines


def visible(text: str) -> str:
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


def _key(question: Question) -> str:
    """What a yes for the session is about: this very command; any edit of files; any use of another tool."""
    if question.tool == "bash":
        return f"bash {question.arguments.get('command')}"
    return "edits" if question.tool in ("write", "edit") else question.tool
