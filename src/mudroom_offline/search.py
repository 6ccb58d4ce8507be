"""Intent: where something is defined and used."""

from __future__ import annotations

import re

from .places import scopes
from .plan import Beyond, Means, Plan, Request, call

_STOP_WORDS = (
    "where is are the a an find locate search for look grep all every function class method variable constant symbol type "
    "struct defined used declared implemented called imported referenced and or in of to what which who calls call uses use "
    "imports references definition definitions usages usage this that project code codebase repository repo file files does do "
    "it please can you be from by with at subtask subtasks task tasks agent delegate a using module located live my our "
    "references caller callers show me tell each other s looking only under located how import reference how does not i want"
)
_STOP = frozenset(_STOP_WORDS.split())
_WORD = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_]\w*)*[?!]?")
_MOST = 60


def symbols(text: str) -> list[str]:
    """The names a request asks about: those in quotes, else those that look like identifiers, else the last plain word."""
    quoted = re.findall(r"[`'\"“‘「]([^`'\"”’」\s]+)[`'\"”’」]", text)
    if quoted:
        return list(dict.fromkeys(name.rstrip("()") for name in quoted))
    words = [w.rstrip("?!") for w in _WORD.findall(re.sub(r"[\w./-]*/[\w./-]*", " ", text))]
    words = [w for w in words if w.lower() not in _STOP]
    shaped = [w for w in words if re.search(r"_|\d|\.|::|[a-z][A-Z]|^[A-Z]\w*[a-z]", w)]
    named = re.search(
        r"(?i)\b(?:function|class|method|variable|constant|symbol|type|struct)s? (\w+)", text
    )
    if named and named[1].lower() not in _STOP:
        shaped = [named[1]]
    return list(dict.fromkeys(shaped or words[-1:]))


def search(request: Request, means: Means) -> Plan:
    """Look a name up, and tell definitions from uses by how the lines look."""
    say = means.say
    if lacking := means.without("grep"):
        return lacking
    names = symbols(request.text)[:3]
    if not names:
        raise Beyond(
            say(
                "Which name shall be looked up? Put it in backticks: `name`.",
                "要查找哪个名称?请用反引号标出:`name`。",
            )
        )
    place = (scopes(request.text) or [""])[0].rstrip("/") or None
    asks = [
        call("grep", pattern=_word(name), path=place, output_mode="content", head_limit=400)
        for name in names
    ]
    outcomes = yield asks
    parts: list[str] = []
    for name, outcome in zip(names, outcomes, strict=True):
        lines = [
            m.groups()
            for m in map(re.compile(r"^(.+?):(\d+):(.*)$").match, outcome.text.split("\n"))
            if m
        ]
        cut = any(row.startswith(("(", "[")) for row in outcome.text.split("\n")[-1:]) and bool(
            lines
        )
        parts.append(_told(name, lines, cut, means, request))
    return "\n\n".join(parts)


def _told(
    name: str, lines: list[tuple[str, ...]], cut: bool, means: Means, request: Request
) -> str:
    say = means.say
    if not lines:
        return say(f"`{name}` was not found in any file.", f"没有在任何文件中找到 `{name}`。")
    plain = name.split(".")[-1].split("::")[-1]
    definition = re.compile(_DEFINITION.replace("NAME", re.escape(plain)))
    defined = [
        line
        for line in lines
        if definition.search(line[2]) and not line[0].endswith((".md", ".rst", ".txt"))
    ]
    used = [line for line in lines if line not in defined]
    files = len({line[0] for line in used})
    found = (
        [say(f"`{name}` is defined in:", f"`{name}` 定义于:") + "\n" + _rows(defined)]
        if defined
        else []
    )
    found += (
        []
        if defined
        else [say(f"No definition of `{name}` was found.", f"没有找到 `{name}` 的定义。")]
    )
    at_least = say("at least ", "至少 ") if cut else ""
    if used:
        found.append(
            say(
                f"It is used in {at_least}{len(used)} lines of {files} files:",
                f"使用于{at_least}{files} 个文件的 {len(used)} 行:",
            )
            + "\n"
            + _rows(used)
        )
        if len(used) > _MOST:
            found.append(
                say(f"… and {len(used) - _MOST} more lines.", f"……另有 {len(used) - _MOST} 行。")
            )
    else:
        found.append(say("It is used nowhere else.", "没有其他地方使用。"))
    return "\n\n".join(found)


_DEFINITION = (
    r"\b(?:def|class|function\*?|fn|func|struct|enum|trait|interface|type|module|defmodule|defp|fun|object|record|namespace|macro_rules!|typedef|protocol)"
    r"\s+(?:\([^)]*\)\s*)?(?:self\.|[\w:]+::)?NAME\b"
    r"|^\s*(?:export\s+)?(?:default\s+)?(?:pub\s+)?(?:const|let|var|val|static|final)\s+(?:mut\s+)?(?:[\w<>\[\]]+\s+)?NAME\b"
    r"|^(?:[A-Za-z_]\w*\.)?NAME\s*(?::[^=()]+)?:?=[^=]"
    r"|^\s*(?:(?:public|private|protected|static|async|final|override|virtual|inline|extern|unsigned|const)\s+)+[\w<>\[\],*&.\s]*?\bNAME\s*\("
    r"|^#\s*define\s+NAME\b|^[\w:*&<>]+[\s*&]+NAME\s*\([^;]*\)\s*\{?\s*$"
)


def _word(name: str) -> str:
    left = r"\b" if re.match(r"\w", name) else ""
    right = r"\b" if re.search(r"\w$", name) else ""
    return left + re.escape(name).replace(r"\-", "-").replace("\\ ", " ") + right


def _rows(lines: list[tuple[str, ...]]) -> str:
    return "\n".join(
        f"- `{path}:{number}` `{text.strip()[:120].replace('`', chr(39))}`"
        for path, number, text in lines[:_MOST]
    )
