"""Request "count": how many files and lines there are of each kind."""

from __future__ import annotations

import re

from .plans import Context, Plan, Request, plan_call
from .requests import find_exclusions, find_patterns, find_scopes, source_suffixes
from .tool_output import format_table, is_cut

_ROW = re.compile(r"^(.+):(\d+)$")
_LIMIT = 100_000


def find_kinds(text: str) -> list[str]:
    """Return the suffixes a request names, with dots; empty for all."""
    suffixes = [p.rpartition("*.")[2] for p in find_patterns(text) if "*." in p]
    return [] if len(suffixes) >= len(source_suffixes()) else [f".{s}" for s in suffixes]


def count_lines(request: Request, context: Context) -> Plan:
    """Count with a pattern that matches every line: its counts are the lines of each file."""
    context.require("grep")
    scopes = [scope.rstrip("/") for scope in find_scopes(request.text)] or [None]
    globs = [f"*{kind}" for kind in find_kinds(request.text)] or [None]
    outputs = yield [
        plan_call(
            "grep", pattern="^", path=scope, glob=glob, output_mode="count", head_limit=_LIMIT
        )
        for scope in scopes
        for glob in globs
    ]
    excluded = tuple(find_exclusions(request.text))
    lines: dict[str, int] = {}
    for output in outputs:
        for row in output.text.split("\n"):
            match = _ROW.match(row)
            if match and not (excluded and match[1].startswith(excluded)):
                lines[match[1]] = int(match[2])
    is_partial = any(is_cut(output) and "[" in output.text for output in outputs)
    if not lines:
        return context.say("There are no such files.")
    return _describe(lines, is_partial, context)


def _describe(lines: dict[str, int], is_partial: bool, context: Context) -> str:
    say = context.say
    by_kind: dict[str, list[int]] = {}
    for path, count in lines.items():
        name = path.rpartition("/")[2]
        suffix = name.rpartition(".")[2] if "." in name[1:] else ""
        kind = f"`.{suffix}`" if suffix else say("(no suffix)")
        by_kind.setdefault(kind, []).append(count)
    ordered = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    rows = [(kind, f"{len(counts):,}", f"{sum(counts):,}") for kind, counts in ordered]
    rows.append((say("**Total**"), f"{len(lines):,}", f"{sum(lines.values()):,}"))
    at_least = say("at least ") if is_partial else ""
    total = sum(lines.values())
    lead = say(
        "There are {at_least}{lines_count:,} files with {total:,} lines (empty files not counted):",
        at_least=at_least,
        lines_count=len(lines),
        total=total,
    )
    head = (say("Kind"), say("Files"), say("Lines"))
    return f"{lead}\n\n{format_table(head, rows)}"
