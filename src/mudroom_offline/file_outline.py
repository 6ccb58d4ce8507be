"""What one source file is for: its own first words, then the names it defines."""

from __future__ import annotations

import ast
import re

from .catalog import OutlineRules, outline_rules
from .plans import Translator
from .tool_output import FileText

_LENGTH = 170
_MOST_NAMES = 6
_HEAD_LINES = 40
_PROSE = ("md", "markdown", "mdx", "rst")
_NOISE = re.compile(
    r"(?i)copyright|licen[sc]e|spdx|all rights reserved|eslint|@flow|use strict|prettier"
    r"|coding[:=]|generated (?:by|file|code)|do not edit|^\W*$|^!|pylint|type: ignore|ruff:|noqa"
    r"|@ts-|^\s*(?:author|version|since|package|file)\s*:|go:build|^\+build|pragma once"
    r"|frozen_string|-\*-|vim:|^region|^@"
)
_BLOCK_COMMENT = re.compile(
    r"(?s)\A(?:\s*(?:<\?php|<script[^>]*>|['\"]use \w+['\"];?|//[^\n]*|package [\w.]+;?"
    r"|/\*(?:(?!\*/).)*(?:[Cc]opyright|[Ll]icen[sc]e)(?:(?!\*/).)*\*/))*\s*/\*+(.*?)\*/"
)
_TEST_TITLE = re.compile(
    r"""(?m)^[ \t]*(?:it|test|describe|scenario|specify)(?:\.\w+)?\s*\(?\s*(['"`])(.+?)\1"""
)


def describe_file(file: FileText, say: Translator) -> str:
    """Return one line that says what a file is for and what it defines."""
    if file.error:
        return say("not readable: {error}", error=file.error)[:_LENGTH]
    text = file.text
    if not text.strip():
        return say("Empty file.")
    suffix = file.path.rpartition(".")[2].lower()
    rules = outline_rules().get(suffix, OutlineRules())
    purpose = _find_purpose(suffix, rules, text)[:_LENGTH]
    details = "; ".join(_list_names(suffix, rules, text, say))
    if purpose and purpose[-1] not in ".!?。!?:":
        purpose += "."
    room = _LENGTH - len(purpose)
    if len(details) > room:
        details = f"{details[:room].rpartition(',')[0]}, …" if room > 40 else ""
    line = f"{purpose} {details}".strip()
    count = len(file.lines)
    return line or say("{count} lines, no definitions.", count=count)


def _find_purpose(suffix: str, rules: OutlineRules, text: str) -> str:
    """Return the first sentence that the file says about itself, "" if it says nothing."""
    if suffix in ("py", "pyi"):
        return _first_sentence(_module_docstring(text)) or _head_comment("#", text)
    if suffix in _PROSE:
        heading = re.search(r"(?m)^#\s+(.+?)\s*#*$|^(\S.*)\n={3,}\s*$", text)
        if heading:
            return heading[1] or heading[2]
        return next(line.strip() for line in text.split("\n") if line.strip())
    if suffix in ("ex", "exs"):
        match = re.search(r'(?s)@moduledoc\s+(?:~S)?"""\s*\n(.*?)"""', text)
        if match:
            return _first_sentence(match[1])
    if rules.comment in ("//", "/*"):
        match = _BLOCK_COMMENT.match(text[:6000])
        words = re.sub(r"(?m)^[ \t]*\*+ ?", "", match[1]).strip() if match else ""
        lines = words.split("\n\n")[0].split("\n")
        if words and not any(map(_NOISE.search, lines)):
            return _first_sentence(" ".join(lines))
    return _head_comment(rules.comment or "#", text)


def _module_docstring(text: str) -> str:
    try:
        return ast.get_docstring(ast.parse(text)) or ""
    except (SyntaxError, ValueError, RecursionError):
        return ""


def _head_comment(mark: str, text: str) -> str:
    """Return the first sentence of the first comment lines that are not a licence or a setting."""
    words: list[str] = []
    for line in text.split("\n")[:_HEAD_LINES]:
        bare = line.strip()
        comment = bare.lstrip(mark + "!/ ")
        if bare.startswith(mark) and not bare.startswith("#!") and not _NOISE.search(comment):
            words.append(comment)
        elif words or (bare and not bare.startswith((mark, "#!", "<?", "package ", "/*", "*"))):
            break
    return _first_sentence(" ".join(words))


def _first_sentence(text: str) -> str:
    paragraph = re.sub(r"\s+", " ", text.strip().split("\n\n")[0]).strip()
    match = re.match(r".*?[.!?。!?](?=\s|$)", paragraph)
    return match[0] if match else paragraph


def _list_names(suffix: str, rules: OutlineRules, text: str, say: Translator) -> list[str]:
    """Return phrases that list types, functions and tests; names with a leading _ are left out."""
    types = _find_names(rules.types, text)
    functions = _find_names(rules.functions, text)
    tests = [name for name in functions if name.lower().startswith("test")]
    titles = [f"“{match[2]}”" for match in _TEST_TITLE.finditer(text)] if not functions else []
    public = [name for name in functions if name not in tests and not name.startswith("_")]
    label = say("sections ") if suffix in _PROSE else say("classes ")
    if suffix in ("toml", "ini", "cfg", "yaml", "yml", "json"):
        label = say("sections ")
    phrases = [
        _format_names(label, types, say),
        _format_names(say("functions "), public, say),
        _format_names(say("{tests_count} tests: ", tests_count=len(tests)), tests, say),
        _format_names(say("{titles_count} tests: ", titles_count=len(titles)), titles, say),
    ]
    return [phrase for phrase in phrases if phrase]


def _find_names(pattern: str, text: str) -> list[str]:
    if not pattern:
        return []
    groups = (match.groups() for match in re.finditer(pattern, text))
    names = (next((name for name in row if name), "") for row in groups)
    return [name for name in dict.fromkeys(names) if name]


def _format_names(label: str, names: list[str], say: Translator) -> str:
    if not names:
        return ""
    left = len(names) - _MOST_NAMES
    more = say(", {left} more", left=left) if left > 0 else ""
    return label + ", ".join(names[:_MOST_NAMES]) + more
