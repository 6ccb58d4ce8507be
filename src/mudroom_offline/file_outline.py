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


def _find_first_words(file: FileText) -> tuple[int, str]:
    """Return line number and text of the first paragraph of documentation, "" for none."""
    match = re.search(find_outline_rules(file.path).purpose, file.text)
    start, end = match.span(match.lastindex or 0) if match else _find_head_comment(file.text)
    outline = load_data("outline")
    mark = NEVER if match else outline["mark"]
    lines = [re.sub(mark, "", line).strip() for line in file.text[start:end].split("\n")]
    text = "\n".join(lines)
    quote = re.search(outline["paragraph"], text) or re.search(r"\S.*" if match else NEVER, text)
    number = file.text.count("\n", 0, start) + text.count("\n", 0, quote.start() if quote else 0)
    return number + 1, shorten(quote[0] if quote else "", _LENGTH, placeholder="…")


def _find_head_comment(text: str) -> tuple[int, int]:
    """Return the first comment that is not a licence or a setting and has only such before it."""
    outline = load_data("outline")
    head = "\n".join(text.split("\n")[:_HEAD_LINES])
    for match in re.finditer(outline["block"], head):
        block = match[0].strip()
        is_comment = bool(re.match(outline["mark"], block))
        words = re.sub(f"(?m){outline['mark']}", "", block).strip()
        if is_comment and words and not re.search(outline["noise"], words):
            return (0, 0) if re.match(outline["attached"], head[match.start() :]) else match.span()
        if block and not is_comment and not re.match(outline["preamble"], block):
            break
    return 0, 0


def _list_names(file: FileText, say: Translator) -> str:
    """Return a phrase with names on lines of a known form; a leading _ leaves a name out."""
    rules = find_outline_rules(file.path)
    matches = [match for pattern in rules.names for match in re.finditer(pattern, file.text)]
    matches.sort(key=lambda match: match.start())
    numbers: dict[str, int] = {}
    for match in matches:
        group = match.lastindex or 0
        numbers.setdefault(match[group].strip(), file.text.count("\n", 0, match.start(group)) + 1)
    public = [(name, number) for name, number in numbers.items() if not name.startswith("_")]
    shown = [say("name_on_line", name=name, number=number) for name, number in public[:_MOST_NAMES]]
    return say("names", names=say.join(shown)) if shown else ""
