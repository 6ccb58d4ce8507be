"""Requests "description", "run_tests" and "licence": lines of files at the top, with places."""

from __future__ import annotations

import re
from itertools import groupby, islice

from .catalog import load_data
from .file_outline import find_prose
from .plans import Context, Plan, Request, combine
from .tool_output import format_lines, join_globs, list_files, read_files, search_all

_README = re.compile(r"(?i)(?:^|/)readme(?:\.(?:md|rst|txt|markdown|adoc))?$")
_LINKS = ("README.md", "README.rst", "README")


def quote_lines(request: Request, context: Context) -> Plan:
    """Quote the lines of files at the top of the folder that look like what is asked for."""
    context.require("read", "glob", "grep")
    say = context.say
    most, pattern, *globs = load_data("outline")["quotations"][request.kind]
    search = (pattern, join_globs([*globs, "-/-"]))  # a slash: only names at the top match
    listing = (yield from search_all(request, [search], "content"))[0]
    groups = groupby(listing.lines, key=lambda line: line[1])
    answer = format_lines([line for _, lines in groups for line in islice(lines, int(most))], say)
    if not answer and request.kind == "description":
        answer = yield from _quote_readme(request)
    key = f"{request.kind}_lines" if answer else f"no_{request.kind}_lines"
    return combine([say(key, most=most), answer, context.describe_problems([listing.problem])])


def _quote_readme(request: Request) -> Plan:
    """Quote the first paragraph of the README."""
    listing = yield from list_files(request, ["{README,Readme,readme}*"])
    readmes = sorted(path for path in listing.rows if _README.search(path))[:1]
    links = [f"{request.folder or '.'}/{name}" for name in _LINKS]
    texts = yield from read_files([*readmes, *links])  # `glob` lists no links
    for path, file in texts.items():
        not_prose = load_data("outline")["not_prose"]
        text = re.sub(not_prose, lambda match: "\n" * match[0].count("\n"), file.text)
        number, quote = find_prose(text, mark="^> ?")
        if quote:
            return f"- `{path.removeprefix('./')}:{number}` “{quote}”"
    return ""
