"""Requests "description", "run_tests" and "licence": lines of files at the top, with places."""

from __future__ import annotations

import re
from itertools import groupby, islice

from .catalog import load_data
from .plans import Context, Plan, Request, combine
from .tool_output import (
    FileText,
    format_block,
    format_lines,
    join_globs,
    list_files,
    read_files,
    search_all,
)

_MOST_FIRST_LINES = 3
_MOST_PARAGRAPH_LINES = 8


def quote_lines(request: Request, context: Context) -> Plan:
    """Quote the lines of files at the top of the folder that look like what is asked for."""
    context.require("read", "glob", "grep")
    say = context.say
    place = request.name_place(say)
    most, pattern, *globs = load_data("outline")["quotations"][request.kind]
    search = (pattern, join_globs([*globs, "-/-"]))  # a slash: only names at the top match
    listing = (yield from search_all(request, [search], "content"))[0]
    groups = groupby(listing.lines, key=lambda line: line[1])
    lines = [line for _, found in groups for line in islice(found, int(most))]
    key = f"{request.kind}_lines" if lines else f"no_{request.kind}_lines"
    parts = [say(key, place=place, most=most), format_lines(lines, say)]
    if request.kind == "licence":
        parts.append((yield from _quote_first_lines(request, context)))
    if request.kind == "description" and not lines:
        parts = [(yield from _quote_readme(request, context))]
    return combine([*parts, context.describe_problems([listing.problem])])


def _quote_first_lines(request: Request, context: Context) -> Plan:
    """Quote the first lines of the licence files."""
    say = context.say
    globs = load_data("outline")["licence_files"]
    listing = yield from list_files(request, globs)
    if not listing.rows:
        return say("no_licence_files", place=request.name_place(say))
    rows: list[str] = []
    for file in (yield from read_files(listing.rows)).values():
        lines = enumerate(file.text.split("\n"), 1)
        texts = [f"{file.path}:{number}:{line}" for number, line in lines if line.strip()]
        rows += texts[:_MOST_FIRST_LINES] or [f"{file.path}: {file.problem or say('empty_file')}"]
    return combine([say("licence_files", most=_MOST_FIRST_LINES), format_block(rows, say)])


def _quote_readme(request: Request, context: Context) -> Plan:
    """Quote the heading of the README and the first paragraph about the name in the heading."""
    say = context.say
    listing = yield from list_files(request, ["{README,Readme,readme}{,.md,.rst,.txt,.markdown}"])
    links = [f"{request.folder or '.'}/README{suffix}" for suffix in (".md", ".rst", "")]
    texts = yield from read_files([*sorted(listing.rows)[:1], *links])  # `glob` lists no links
    for file in texts.values():
        if name_and_rows := _find_description(file):
            name, rows = name_and_rows
            path = file.path.removeprefix("./")
            block = format_block([f"{path}:{row}" for row in rows], say)
            return combine([say("readme_lines", path=path, name=name), block])
    return say("no_description_lines", place=request.name_place(say))


def _find_description(file: FileText) -> tuple[str, list[str]] | None:
    """Return the name in the heading, and heading and paragraph as numbered lines."""
    outline = load_data("outline")
    text = re.sub(outline["not_prose"], lambda match: "\n" * match[0].count("\n"), file.text)
    heading = re.search(outline["heading"], text)
    name = re.search(r"\w[\w.+-]*\w", heading["name"]) if heading else None
    says_what = outline["says_what"].replace("NAME", re.escape(name[0] if name else "-"))
    start = re.search(says_what, text)
    if not heading or not name or not start:
        return None
    lines = file.text.split("\n")
    first = text.count("\n", 0, heading.start("name"))
    number = text.count("\n", 0, start.start("line"))
    end = next((n for n in range(number, len(lines)) if not lines[n].strip()), len(lines))
    numbers = [first, *range(number, min(end, number + _MOST_PARAGRAPH_LINES))]
    return name[0], [f"{n + 1}:{lines[n]}" for n in dict.fromkeys(numbers)]
