"""Request "find": where a name is defined and used."""

from __future__ import annotations

import re

from .catalog import words
from .plans import CannotAnswer, Context, Plan, Request, combine, plan_call
from .requests import find_scopes
from .tool_output import is_cut

_COMMON_WORDS = frozenset(words("common_words"))
_QUOTED = re.compile(r"[`'\"“‘「]([^`'\"”’」\s]+)[`'\"”’」]")
_WORD = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_]\w*)*[?!]?")
_IDENTIFIER_LIKE = re.compile(r"_|\d|\.|::|[a-z][A-Z]|^[A-Z]\w*[a-z]")
_INTRODUCED = re.compile(
    r"(?i)\b(?:function|class|method|variable|constant|symbol|type|struct)s? (\w+)"
)
_MATCH = re.compile(r"^(.+?):(\d+):(.*)$")
_MOST_ROWS = 60
_MOST_NAMES = 3
_PROSE = (".md", ".rst", ".txt")
_DEFINITION = (
    r"\b(?:def|class|function\*?|fn|func|struct|enum|trait|interface|type|module|defmodule|defp|fun"
    r"|object|record|namespace|macro_rules!|typedef|protocol)"
    r"\s+(?:\([^)]*\)\s*)?(?:self\.|[\w:]+::)?NAME\b"
    r"|^\s*(?:export\s+)?(?:default\s+)?(?:pub\s+)?(?:const|let|var|val|static|final)\s+(?:mut\s+)?"
    r"(?:[\w<>\[\]]+\s+)?NAME\b"
    r"|^(?:[A-Za-z_]\w*\.)?NAME\s*(?::[^=()]+)?:?=[^=]"
    r"|^\s*(?:(?:public|private|protected|static|async|final|override|virtual|inline|extern"
    r"|unsigned|const)\s+)+[\w<>\[\],*&.\s]*?\bNAME\s*\("
    r"|^#\s*define\s+NAME\b|^[\w:*&<>]+[\s*&]+NAME\s*\([^;]*\)\s*\{?\s*$"
)


def find_symbols(text: str) -> list[str]:
    """Return the names a request asks about: quoted ones, else those that look like identifiers."""
    quoted = _QUOTED.findall(text)
    if quoted:
        return list(dict.fromkeys(name.rstrip("()") for name in quoted))
    introduced = _INTRODUCED.search(text)
    if introduced and introduced[1].lower() not in _COMMON_WORDS:
        return [introduced[1]]
    candidates = _WORD.findall(re.sub(r"[\w./-]*/[\w./-]*", " ", text))
    names = [word.rstrip("?!") for word in candidates]
    names = [name for name in names if name.lower() not in _COMMON_WORDS]
    identifiers = [name for name in names if _IDENTIFIER_LIKE.search(name)]
    return list(dict.fromkeys(identifiers or names[-1:]))


def find_symbol(request: Request, context: Context) -> Plan:
    """Search for a name and separate definitions from uses by the form of the lines."""
    context.require("grep")
    names = find_symbols(request.text)[:_MOST_NAMES]
    if not names:
        raise CannotAnswer(context.say("Which name? Put it in backticks: `name`."))
    scope = (find_scopes(request.text) or [""])[0].rstrip("/") or None
    outputs = yield [
        plan_call(
            "grep", pattern=_as_pattern(name), path=scope, output_mode="content", head_limit=400
        )
        for name in names
    ]
    parts: list[str] = []
    for name, output in zip(names, outputs, strict=True):
        matches = [m for m in map(_MATCH.match, output.text.split("\n")) if m]
        if not matches and output.is_error:
            raise CannotAnswer(output.text.strip())
        parts.append(_describe(name, matches, bool(matches) and is_cut(output), context))
    return combine(parts)


def _describe(name: str, matches: list[re.Match[str]], is_partial: bool, context: Context) -> str:
    say = context.say
    if not matches:
        return say("`{name}` was not found in any file.", name=name)
    plain = re.split(r"\.|::", name)[-1]
    definition = re.compile(_DEFINITION.replace("NAME", re.escape(plain)))
    defined = [m for m in matches if definition.search(m[3]) and not m[1].endswith(_PROSE)]
    used = [m for m in matches if m not in defined]
    if defined:
        parts = [say("`{name}` is defined in:", name=name) + "\n" + _format(defined)]
    else:
        parts = [say("No definition of `{name}` was found.", name=name)]
    if not used:
        return combine([*parts, say("It is used nowhere else.")])
    files = len({m[1] for m in used})
    at_least = say("at least ") if is_partial else ""
    lead = say(
        "It is used in {at_least}{used_count} lines of {files} files:",
        at_least=at_least,
        used_count=len(used),
        files=files,
    )
    parts.append(f"{lead}\n{_format(used)}")
    if len(used) > _MOST_ROWS:
        more = len(used) - _MOST_ROWS
        parts.append(say("… and {more} more lines.", more=more))
    return combine(parts)


def _as_pattern(name: str) -> str:
    """Return a pattern for the whole word that ripgrep and Python both understand."""
    left = r"\b" if re.match(r"\w", name) else ""
    right = r"\b" if re.search(r"\w$", name) else ""
    return left + re.escape(name).replace(r"\-", "-").replace("\\ ", " ") + right


def _format(matches: list[re.Match[str]]) -> str:
    rows: list[str] = []
    for match in matches[:_MOST_ROWS]:
        line = match[3].strip()[:120].replace("`", "'")
        rows.append(f"- `{match[1]}:{match[2]}` `{line}`")
    return "\n".join(rows)
