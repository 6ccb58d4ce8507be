"""Requests "description", "run_tests" and "licence": lines of files at the top, with places."""

from __future__ import annotations

import re
from itertools import groupby, islice

from .catalog import load_data
from .file_outline import blank_code, describe_file
from .plans import Context, Plan, Request, combine
from .tool_output import format_block, join_globs, list_files, read_files, search_all


def quote_lines(request: Request, context: Context) -> Plan:
    """Quote the lines of files at the top of the folder that look like what is asked for."""
    context.require("read", "glob", "grep")
    say = context.say
    place = request.name_place(say)
    most, pattern, *globs = load_data("outline")["quotations"][request.kind]
    listing = (yield from search_all(request, [(pattern, join_globs(globs))], "content"))[0]
    commands = [line for line in listing.lines if "no test specified" not in line[3]]
    groups = groupby(commands, key=lambda line: line[1])
    lines = [line for _, found in groups for line in islice(found, int(most))]
    key = f"{request.kind}_lines" if lines else f"no_{request.kind}_lines"
    parts = [say(key, place=place, most=most), format_block([line[0] for line in lines], say)]
    if request.kind in load_data("outline")["first_lines"]:
        parts.append((yield from _quote_first_lines(request, context)))
    return combine([*parts, context.describe_problems([listing.problem])])


def _quote_first_lines(request: Request, context: Context) -> Plan:
    """Quote the first lines of the licence files, or heading and prose of the README."""
    say = context.say
    is_readme = request.kind == "description"
    most, patterns, *globs = load_data("outline")["first_lines"][request.kind]
    listing = yield from list_files(request, globs)
    links = [f"{request.folder or '.'}/README{suffix}" for suffix in (".md", ".rst", "")]
    paths = sorted(listing.rows)[:1] or links if is_readme else listing.rows
    rows: list[str] = []
    for path, file in (yield from read_files(paths)).items():
        lines = file.text.split("\n")
        text = blank_code(file.text) if is_readme else file.text
        matches = [m for p in patterns for m in islice(re.finditer(p, text), int(most))]
        numbers = sorted({text.count("\n", 0, match.start()) for match in matches})
        rows += [f"{path.removeprefix('./')}:{n + 1}:{lines[n]}" for n in numbers]
        if not numbers and not is_readme:
            rows.append(f"{path}: {describe_file(file, say)}")
    key = f"{request.kind}_first_lines"
    if not rows:
        return say(f"no_{key}", place=request.name_place(say))
    return combine([say(key, most=most), format_block(rows, say)])
