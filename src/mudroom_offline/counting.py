"""Intent: how many files and lines there are of each kind."""

from __future__ import annotations

import re

from .languages import SOURCE
from .places import exclusions, scopes
from .plan import Means, Plan, Request, call
from .reading import table, truncated
from .summaries import patterns

_ROW = re.compile(r"^(.+):(\d+)$")
_LIMIT = 100_000


def kinds(text: str) -> list[str]:
    """The kinds a request names as ".py"; empty for all."""
    named = [p.rpartition("*.")[2] for p in patterns(text) if "*." in p]
    return [] if len(named) >= len(SOURCE) else [f".{suffix}" for suffix in named]


def count(request: Request, means: Means) -> Plan:
    """Count with grep: every line matches, so its counts are the lines of each file."""
    say = means.say
    if lacking := means.without("grep"):
        return lacking
    wanted = kinds(request.text)
    places = [place.rstrip("/") for place in scopes(request.text)] or [None]
    globs = [f"*{suffix}" for suffix in wanted] or [None]
    outcomes = yield [
        call("grep", pattern="^", path=place, glob=glob, output_mode="count", head_limit=_LIMIT)
        for place in places
        for glob in globs
    ]
    if not wanted and any(_cut(o.text, truncated(o)) for o in outcomes):
        outcomes += yield [
            call("grep", pattern="^", path=p, glob=f"*.{s}", output_mode="count", head_limit=_LIMIT)
            for p in places
            for s in SOURCE
        ]
    without = tuple(exclusions(request.text))
    lines: dict[str, int] = {}
    for outcome in outcomes:
        rows = map(_ROW.match, outcome.text.split("\n"))
        lines |= {m[1]: int(m[2]) for m in rows if m and not (without and m[1].startswith(without))}
    partial = any(_cut(o.text, True) for o in outcomes)
    if not lines:
        return say("There are no such files.", "没有这样的文件。")
    return _told(lines, partial, means)


def _cut(text: str, listed_long: bool) -> bool:
    last = text.rstrip().rpartition("\n")[2]
    return listed_long and last.startswith(("(", "[")) and "more" in last


def _told(lines: dict[str, int], partial: bool, means: Means) -> str:
    say = means.say
    by_kind: dict[str, list[int]] = {}
    for path, number in lines.items():
        name = path.rpartition("/")[2]
        by_kind.setdefault(
            "." + name.rpartition(".")[2] if "." in name[1:] else say("(no suffix)", "(无扩展名)"),
            [],
        ).append(number)
    order = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    rows = [(f"`{kind}`", f"{len(numbers):,}", f"{sum(numbers):,}") for kind, numbers in order]
    rows.append((say("**Total**", "**合计**"), f"{len(lines):,}", f"{sum(lines.values()):,}"))
    at_least = say("at least ", "至少 ") if partial else ""
    lead = say(
        f"There are {at_least}{len(lines):,} files with {sum(lines.values()):,} lines (empty files not counted):",
        f"共有{at_least} {len(lines):,} 个文件,{sum(lines.values()):,} 行(不含空文件):",
    )
    return (
        lead
        + "\n\n"
        + table((say("Kind", "类型"), say("Files", "文件数"), say("Lines", "行数")), rows)
    )
