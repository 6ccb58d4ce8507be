"""Requests "find" and "count": lines that define or contain a name; numbers of files and lines."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .catalog import find_outline_rules, load_data
from .plans import CannotAnswer, Context, Plan, Request, combine
from .requests import find_patterns, find_symbols
from .tool_output import find_place, format_block, format_table, grep_all, join_globs, list_files

_COMMENT = re.compile(r"\s*(?:#(?!\s*define)|//|/?\*|--|;|%|>>>|\.\.\.)")


def find_symbol(request: Request, context: Context) -> Plan:
    """List the lines that contain a name, first those that look like a definition."""
    context.require("grep")
    say = context.say
    names = find_symbols(request.text)
    name = names[0] if len(names) == 1 else ""
    if not name or ("." in name and find_outline_rules(name).suffixes):
        raise CannotAnswer(say("which_name"))
    plain = re.escape(name).replace(r"\-", "-")  # ripgrep and Python both understand it
    word = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", plain)
    listing = (yield from grep_all(request, [(word, "**/*")], "content"))[0]
    if listing.problem and listing.rows:
        definition = load_data("languages")["keyword_definition"].replace("NAME", plain)
        first = (yield from grep_all(request, [(definition, "**/*")], "content"))[0]
        listing.rows = list(dict.fromkeys([*first.rows, *listing.rows]))
    if listing.problem and not listing.rows:
        raise CannotAnswer(listing.problem)
    problem = context.describe_problems([listing.problem])
    parts = [say("whole_name", name=name)] if re.search(r"\.|::|#", name) else []
    lines = listing.lines
    lines.sort(key=lambda line: not find_outline_rules(line[1]).is_source)
    at_least = say("at_least") if problem else ""
    files = at_least + say.count(len({line[1] for line in lines}), "file")
    count = at_least + say.count(len(lines), "line")
    key = "lines_with_name" if lines else "no_line_with_name"
    summary = say(key, name=name, place=request.name_place(say), count=count, files=files)
    parts.append(f"{summary} {say('left_out_lines')}")
    likely = [line[0] for line in lines if _looks_like_definition(name, line)]
    others = [line[0] for line in lines if line[0] not in likely]
    if likely:
        parts += [say("likely_definitions"), format_block(likely, say)]
    if others:
        parts += [say("other_lines" if likely else "all_lines"), format_block(others, say)]
    return combine([*parts, problem])


def count_lines(request: Request, context: Context) -> Plan:
    """Count files with `glob`, and lines with a pattern that matches every line."""
    context.require("grep", "glob")
    say = context.say
    request = yield from find_place(request, say)
    globs = find_patterns(request.text) or ["**/*"]
    texts = {"globs": say.join(f"`{glob}`" for glob in globs), "place": request.name_place(say)}
    listing = yield from list_files(request, globs)
    if not listing.total:
        return say("no_file", **texts)
    counts = (yield from grep_all(request, [("^", join_globs(globs))], "count"))[0]
    problem = context.describe_problems([listing.problem, counts.problem])
    by_kind: dict[str, list[int]] = {}
    for row in counts.rows:
        path, _, count = row.rpartition(":")
        suffix = PurePosixPath(path).suffix
        name = say("headers") if suffix == ".h" else f"`{suffix}`" if suffix else say("no_suffix")
        by_kind.setdefault(name, []).append(int(count))
    table = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    counted = sum(map(len, by_kind.values()))
    total = sum(map(sum, by_kind.values()))
    at_least = say("at_least") if problem else ""
    numbers = [(kind, len(lines), sum(lines)) for kind, lines in table]
    numbers.append((say("total"), counted, total))
    cells = [(x, f"{at_least}{files:,}", f"{at_least}{lines:,}") for x, files, lines in numbers]
    texts |= {"lines": say.count(total, "line"), "files": say.count(listing.total, "file")}
    lead = say("counts", at_least=at_least, counted=f"{counted:,}", **texts)
    table_text = format_table(map(say, ("kind", "files", "lines")), cells)
    return combine([lead, table_text if counted else "", problem])


def _looks_like_definition(name: str, line: re.Match[str]) -> bool:
    pattern = find_outline_rules(line[1]).definition
    plain = rf"{re.escape(name)}(?!\$)"
    hit = re.search(pattern.replace("NAME", plain), line[3])
    before = line[3][: hit.start()] if hit else "//"
    is_text = "//" in before or any(before.count(quote) % 2 for quote in "\"'`")
    return not is_text and not _COMMENT.match(line[3])
