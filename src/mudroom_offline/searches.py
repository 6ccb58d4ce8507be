"""Requests "find" and "count": where a name is defined and used; how many files and lines."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .catalog import find_outline_rules, load_data
from .plans import CannotAnswer, Context, Plan, Request, Translator, combine
from .requests import find_patterns, find_symbols
from .tool_output import describe_problems, format_table, join_globs, list_files, search_all

_ROW = re.compile(r"(.+?):(\d+):(.*)")
_COMMENT = re.compile(r"\s*(?:#(?!\s*define)|//|/?\*|--|;|%|>>>|\.\.\.)")
_MOST_ROWS = 60


def find_symbol(request: Request, context: Context) -> Plan:
    """Search for the name and separate definitions from uses by the form of the lines."""
    context.require("grep")
    say = context.say
    names = find_symbols(request.text)
    if len(names) != 1:
        raise CannotAnswer(say("which_name"))
    name = names[0]
    plain = re.escape(name).replace(r"\-", "-")  # ripgrep and Python both understand it
    word = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", plain)
    listing = (yield from search_all(request, [(word, "**/*")], "content"))[0]
    problem = describe_problems([listing.problem], say)
    if problem and listing.rows:
        definition = load_data("languages")["keyword_definition"].replace("NAME", plain)
        first = (yield from search_all(request, [(definition, "**/*")], "content"))[0]
        listing.rows = list(dict.fromkeys([*first.rows, *listing.rows]))
    matches = [match for row in listing.rows if (match := _ROW.fullmatch(row))]
    if not matches and problem:
        raise CannotAnswer(combine([say("name_not_seen", name=name), problem]))
    if not matches:
        return say("name_not_seen", name=name)
    matches.sort(key=lambda match: not find_outline_rules(match[1]).is_source)
    defined = [match for match in matches if _is_definition(name, match)]
    used = [match for match in matches if match not in defined]
    parts = [say("no_definition", name=name)]
    if defined:
        parts = [say("defined_in", name=name) + "\n" + _format(defined, say)]
    if used:
        files = say.count(len({match[1] for match in used}), "file")
        at_least = say("at_least") if problem else ""
        count = say.count(len(used), "line")
        lead = say("appears_in", at_least=at_least, count=count, files=files)
        parts.append(f"{lead}\n{_format(used, say)}")
    return combine([*parts, problem])


def count_lines(request: Request, context: Context) -> Plan:
    """Count files with `glob`, and lines with a pattern that matches every line."""
    context.require("grep", "glob")
    say = context.say
    globs = find_patterns(request.text) or ["**/*"]
    listing = yield from list_files(request, globs)
    if not listing.total:
        return say("no_file")
    counts = (yield from search_all(request, [("^", join_globs(globs))], "count"))[0]
    problem = describe_problems([listing.problem, counts.problem], say)
    by_kind: dict[str, list[int]] = {}
    for row in counts.rows:
        path, _, count = row.rpartition(":")
        suffix = PurePosixPath(path).suffix
        by_kind.setdefault(f"`{suffix}`" if suffix else say("no_suffix"), []).append(int(count))
    table = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    cells = [(kind, f"{len(lines):,}", f"{sum(lines):,}") for kind, lines in table]
    counted = sum(map(len, by_kind.values()))
    total = sum(map(sum, by_kind.values()))
    cells.append((say("total"), f"{counted:,}", f"{total:,}"))
    at_least = say("at_least") if problem else ""
    texts = {"counted": f"{at_least}{counted:,}", "lines": at_least + say.count(total, "line")}
    texts["globs"] = say.join(f"`{glob}`" for glob in globs)
    lead = say("counts", files=say.count(listing.total, "file"), **texts)
    head = (say("kind"), say("files"), say("lines"))
    return combine([lead, format_table(head, cells) if counted else "", problem])


def _is_definition(name: str, match: re.Match[str]) -> bool:
    pattern = find_outline_rules(match[1]).definition
    plain = re.escape(re.split(r"\.|::|#", name)[-1])
    hit = re.search(pattern.replace("NAME", rf"{plain}(?!\$)"), match[3]) if pattern else None
    before = match[3][: hit.start()] if hit else "//"
    is_text = "//" in before or any(before.count(quote) % 2 for quote in "\"'`")
    return not is_text and not _COMMENT.match(match[3])


def _format(matches: list[re.Match[str]], say: Translator) -> str:
    rows: list[str] = []
    for match in matches[:_MOST_ROWS]:
        line = match[3].strip()[:120].replace("`", "'")
        rows.append(f"- `{match[1]}:{match[2]}` `{line}`")
    left = len(matches) - _MOST_ROWS
    return "\n".join([*rows, say("more", left=left)] if left > 0 else rows)
