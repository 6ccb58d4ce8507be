"""Requests "description", "run_tests" and "licence": lines of files at the top, with places."""

from __future__ import annotations

import re
from itertools import groupby, islice

from .catalog import load_data, matches_any
from .file_outline import blank_code
from .plans import Context, Plan, Request, Translator, combine
from .tool_output import format_block, grep_all, join_globs, list_files, read_files


def quote_lines(request: Request, context: Context) -> Plan:
    """Quote the lines of files at the top that look like what is asked for, found ones first."""
    context.require("read", "glob", "grep")
    say = context.say
    most, pattern, *globs = load_data("outline")["quotations"][request.kind]
    top = yield from list_files(request, ["*", ".github/[Cc]*"])
    paths = [x.removeprefix(f"{request.folder}/") for x in _select_files(top.rows, globs)]
    names = [re.sub(r"[^\w.+@/ -]", "?", path) for path in paths]
    searches = [(pattern, join_globs(["-/-", *names]))]
    listing = (yield from grep_all(request, searches, "content"))[0]
    commands = [line for line in listing.lines if "no test specified" not in line[3]]
    groups = groupby(commands, key=lambda line: line[1])
    lines = [line[0] for _, group in groups for line in islice(group, int(most))]
    key = f"{request.kind}_lines" if lines else f"no_{request.kind}_lines"
    lead = say(key, place=request.name_place(say), most=most, names=say.join(globs))
    parts = [lead, format_block(lines, say)]
    if request.kind in load_data("outline")["first_lines"]:
        parts.insert(2 if lines else 0, (yield from _quote_first_lines(request, top.rows, say)))
    return combine([*parts, context.describe_problems([top.problem, listing.problem])])


def _select_files(paths: list[str], globs: list[str]) -> list[str]:
    lower = tuple(glob.lower() for glob in globs)
    return sorted(path for path in paths if matches_any(path.lower(), lower))


def _quote_first_lines(request: Request, top: list[str], say: Translator) -> Plan:
    """Quote the first lines of the licence files, or heading and prose of the README."""
    is_readme = request.kind == "description"
    most, patterns, *globs = load_data("outline")["first_lines"][request.kind]
    links = [f"{request.folder or '.'}/README{suffix}" for suffix in (".md", ".rst", "")]
    paths = _select_files(top, globs)
    paths = paths[:1] or links if is_readme else paths
    rows: list[str] = []
    seen: set[int] = set()
    for path, file in (yield from read_files(paths)).items():
        lines = file.text.split("\n")
        text = blank_code(file.text) if is_readme else file.text
        seen |= {number for number, pattern in enumerate(patterns) if re.search(pattern, text)}
        matches = [m for p in patterns for m in islice(re.finditer(p, text), int(most))]
        numbers = sorted({text.count("\n", 0, match.start()) for match in matches})
        rows += [f"{path.removeprefix('./')}:{n + 1}:{lines[n]}" for n in numbers]
    key = f"{request.kind}_first_lines"
    if not rows:
        return say(f"no_{key}", place=request.name_place(say))
    parts = say.join(say(f"{request.kind}_{number}") for number in sorted(seen))
    return combine([say(key, most=most, parts=parts), format_block(rows, say)])
