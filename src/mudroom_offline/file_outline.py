"""Describes one file: its first words and the lines that may define something, quoted."""

from __future__ import annotations

import re
from textwrap import shorten

from .catalog import NEVER, find_outline_rules, load_data
from .plans import Translator
from .tool_output import FileText

HEAD_LINES = 60
MOST_LINES = 2
_LENGTH = 400
_LINE_LENGTH = 60


def describe_file(file: FileText, say: Translator) -> str:
    """Describe a file in one line: number of lines, first words, and lines with definitions."""
    if file.problem and not file.text:
        return say("no_line_read", error=file.problem)[:_LENGTH]
    count = say.count(file.text.count("\n") + 1, "line")
    if not file.text.strip():
        return say("all_blank", count=count)
    text = file.text if find_outline_rules(file.path).is_source else blank_code(file.text)
    parts = [*_quote_first_words(file.path, text, say), *_quote_definitions(file, text, say)]
    return say("sentence_end").join([file.problem or count, *parts])


def blank_code(text: str) -> str:
    """Blank out code, comments and HTML in Markdown."""
    blocks = load_data("outline")["not_prose"]
    # With as many line feeds, so that the numbers of the other lines stay right.
    return re.sub(blocks, lambda match: "\n" * match[0].count("\n"), text)


def _quote_first_words(path: str, text: str, say: Translator) -> list[str]:
    match = re.search(find_outline_rules(path).purpose, text)
    start, end = match.span(match.lastindex or 0) if match else _find_head_comment(text)
    outline = load_data("outline")
    mark = NEVER if match else outline["mark"]
    words = "\n".join(re.sub(mark, "", line).strip() for line in text[start:end].split("\n"))
    quote = re.search(outline["paragraph"], words) or re.search(r"\S.*" if match else NEVER, words)
    if not quote:
        return []
    first = text.count("\n", 0, start) + words.count("\n", 0, quote.start()) + 1
    last = first + quote[0].count("\n")
    key = "on_lines" if last > first else "on_line"
    short = shorten(quote[0], _LENGTH, placeholder="…")
    return [say(key, first=first, last=last, text=short)] if first <= HEAD_LINES else []


def _find_head_comment(text: str) -> tuple[int, int]:
    """Find the first comment that is not a licence or a setting, and has only such before it."""
    outline = load_data("outline")
    head = "\n".join(text.split("\n")[:HEAD_LINES])
    for match in re.finditer(outline["block"], head):
        block = match[0].strip()
        is_comment = bool(re.match(outline["mark"], block))
        words = re.sub(f"(?m){outline['mark']}", "", block).strip()
        if is_comment and words and not re.search(outline["noise"], words):
            return (0, 0) if re.match(outline["attached"], head[match.start() :]) else match.span()
        if block and not is_comment and not re.match(outline["preamble"], block):
            break
    return 0, 0


def _quote_definitions(file: FileText, text: str, say: Translator) -> list[str]:
    """Quote lines of a known form with their numbers, without names that begin with "_"."""
    rules = find_outline_rules(file.path)
    matches = [match for pattern in rules.names for match in re.finditer(pattern, text)]
    numbers: dict[str, int] = {}
    for match in sorted(matches, key=lambda match: match.start()):
        group = match.lastindex or 0
        numbers.setdefault(match[group].strip(), text.count("\n", 0, match.start(group)))
    lines = file.text.split("\n")
    public = dict.fromkeys(n for name, n in numbers.items() if not name.startswith("_"))
    quotes = [_mark_as_code(f"{n + 1}: {lines[n].strip()}") for n in list(public)[:MOST_LINES]]
    return [say("quoted_lines", lines=say.join(quotes))] if quotes else []


def _mark_as_code(line: str) -> str:
    line = line if len(line) <= _LINE_LENGTH else f"{line[:_LINE_LENGTH]}…"
    # In Markdown, a fence must be longer than any row of backticks inside.
    marks = "`" * (max([0, *map(len, re.findall("`+", line))]) + 1)
    return f"{marks} {line} {marks}" if "`" in line else f"`{line}`"
