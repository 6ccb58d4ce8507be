"""Description of one file: its first words, quoted, and the names it may define."""

from __future__ import annotations

import re
from textwrap import shorten

from .catalog import NEVER, find_outline_rules, load_data
from .plans import Translator
from .tool_output import FileText

_LENGTH = 400
_MOST_NAMES = 6
_HEAD_LINES = 60
_BLOCK = re.compile(r"[ \t]*/\*(?s:.*?)\*/.*\n?|(?:[ \t]*(?:#+(?!\S)|//|--).*\n?)+|.*\n?")
_MARK = r"[ \t]*\*+/[ \t]*$|^[ \t]*(?:#+(?!\S)|//+!?|/\*+!?|--+|\*+(?=\s|$))"
_CONTINUATION = re.compile(r"[^-*+#|=~<@.:]")
_PROSE = re.compile(r"[\u3400-\u9fff]{4}|[A-Za-z]\S* +\S*[A-Za-z]")


def describe_file(file: FileText, say: Translator) -> str:
    """Return one line: the number of lines, the first words quoted, and names it may define."""
    if file.problem and not file.text:
        return say("not_readable", error=file.problem)[:_LENGTH]
    if not file.text.strip():
        return say("empty_file")
    parts = [file.problem or say.count(file.text.count("\n") + 1, "line")]
    number, quote = _find_first_words(file)
    if quote:
        parts.append(say("on_line", number=number, text=quote))
    return ". ".join([*parts, _list_names(file, say)]).removesuffix(". ")


def find_prose(text: str, start: int = 0, mark: str = NEVER) -> tuple[int, str]:
    """Return line number and text of the first paragraph of prose after a position."""
    paragraph: list[str] = []
    number = text.count("\n", 0, start) + 1
    for line in text[start:].split("\n"):
        words = re.sub(mark, "", line).strip()
        is_start = _PROSE.search(words) and not re.match(load_data("outline")["markup"], words)
        if paragraph and not _CONTINUATION.match(words):
            break
        if paragraph or is_start:
            paragraph.append(words)
        number += not paragraph
    return number, shorten(" ".join(paragraph), _LENGTH, placeholder="…")


def _find_first_words(file: FileText) -> tuple[int, str]:
    """Return line number and text of the first paragraph of documentation, "" for none."""
    rules = find_outline_rules(file.path)
    if match := re.search(rules.purpose, file.text):
        start, end = match.span(match.lastindex or 0)
        number, quote = find_prose(file.text[:end], start)
        title = file.text[start:end].strip().partition("\n")[0]
        return (number, quote) if quote else (file.text.count("\n", 0, start) + 1, title)
    start, end = _find_head_comment(file.text)
    if not end and (match := re.search(rules.about, file.text)):
        start, end = match.span("text")
    return find_prose(file.text[:end], start, _MARK)


def _find_head_comment(text: str) -> tuple[int, int]:
    """Return the first comment that is not a licence or a setting and has only such before it."""
    outline = load_data("outline")
    head = "\n".join(text.split("\n")[:_HEAD_LINES])
    for match in _BLOCK.finditer(head):
        block = match[0].strip()
        is_comment = bool(re.match(_MARK, block))
        words = "\n".join(re.sub(_MARK, "", line) for line in block.split("\n")).strip()
        if is_comment and words and not re.search(outline["noise"], words):
            return (0, 0) if re.match(outline["attached"], head[match.start() :]) else match.span()
        if block and not is_comment and not re.match(outline["preamble"], block):
            break
    return 0, 0


def _list_names(file: FileText, say: Translator) -> str:
    """Return a phrase with the names on lines of a known form; a leading _ leaves a name out."""
    rules = find_outline_rules(file.path)
    matches = [match for pattern in rules.names for match in re.finditer(pattern, file.text)]
    matches.sort(key=lambda match: match.start())
    names = dict.fromkeys(match[match.lastindex or 0].strip() for match in matches)
    public = [name for name in names if not name.startswith("_")]
    if not public:
        return ""
    shown = public[:_MOST_NAMES]
    is_cut = len(shown) < len(public)
    more = say("more_names", shown=len(shown), total=len(public)) if is_cut else ""
    return say("defines" if rules.is_source else "sections", names=say.join(shown), more=more)
