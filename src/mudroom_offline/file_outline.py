"""Description of one source file: its own first words, then the names it defines."""

from __future__ import annotations

import re

from .catalog import load_data, outline_rules
from .plans import Translator
from .tool_output import FileText

_LENGTH = 170
_MOST_NAMES = 6
_HEAD_LINES = 40
_COMMENT = re.compile(r"^\s*(?:#+(?=\s|$)|//+!?|/\*+!?|\*+/?|--+)\s*(.*?)\s*(?:\*/)?$")


def describe_file(file: FileText, say: Translator) -> str:
    """Return one line that says what a file is for and what it defines."""
    if file.problem and not file.lines:
        return say("not readable: {error}", error=file.problem)[:_LENGTH]
    if not file.text.strip():
        return say("Empty file.")
    purpose = _find_purpose(file)[:_LENGTH]
    if purpose and purpose[-1] not in ".!?。！？:：":
        purpose += "."
    details = "; ".join(_list_names(file, say))
    room = _LENGTH - len(purpose)
    if len(details) > room:
        details = f"{details[:room].rpartition(',')[0]}, …" if room > 40 else ""
    count = len(file.lines)
    line = f"{purpose} {details}".strip() or say("{count} lines, no definitions.", count=count)
    return f"{line} ({file.problem})" if file.problem else line


def _find_purpose(file: FileText) -> str:
    """Return the first sentence that the file says about itself, "" if it says nothing."""
    rules = outline_rules(file.path)
    if rules.purpose and (match := re.search(rules.purpose, file.text)):
        return _first_sentence(next(filter(None, match.groups()), ""))
    return _first_sentence(_find_head_comment(file.text))


def _find_head_comment(text: str) -> str:
    """Return the first comment that is not a licence or a setting and has only such before it."""
    outline = load_data("outline")
    words = ""
    for line in [*text.split("\n")[:_HEAD_LINES], ""]:
        comment = _COMMENT.match(line)
        if comment and comment[1]:
            words += f"{comment[1]} "
            continue
        if words and not re.search(outline["noise"], words):
            return words
        words = ""
        if line.strip() and not comment and not re.match(outline["preamble"], line):
            return ""
    return ""


def _first_sentence(text: str) -> str:
    paragraph = re.sub(r"\s+", " ", text.strip().split("\n\n")[0]).strip()
    match = re.match(r".*?[.!?。！？](?=\s|$)", paragraph)
    return match[0] if match else paragraph


def _list_names(file: FileText, say: Translator) -> list[str]:
    """Return phrases that list types, functions and tests; names with a leading _ are left out."""
    rules = outline_rules(file.path)
    functions = _find_names(rules.functions, file.text)
    tests = [name for name in functions if name.lower().startswith("test")]
    tests += [f"“{title}”" for title in _find_names(rules.tests, file.text)]
    public = [name for name in functions if name not in tests]
    label = say("classes ") if rules.is_source else say("sections ")
    phrases = [
        _format_names(label, _find_names(rules.types, file.text), say),
        _format_names(say("functions "), public, say),
        _format_names(say("{count} tests: ", count=len(tests)), tests, say),
    ]
    return [phrase for phrase in phrases if phrase]


def _find_names(pattern: str, text: str) -> list[str]:
    if not pattern:
        return []
    matches = re.finditer(pattern, text)
    names = (next(filter(None, match.groups()), "_") for match in matches)
    return list(dict.fromkeys(name for name in names if not name.startswith("_")))


def _format_names(label: str, names: list[str], say: Translator) -> str:
    if not names:
        return ""
    left = len(names) - _MOST_NAMES
    more = say(", {left} more", left=left) if left > 0 else ""
    return label + ", ".join(names[:_MOST_NAMES]) + more
