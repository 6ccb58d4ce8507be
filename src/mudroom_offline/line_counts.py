"""Request "count": how many files and lines there are of each kind."""

from __future__ import annotations

from .plans import Context, Plan, Request, combine, plan_call
from .project_survey import describe_problems
from .requests import find_patterns
from .tool_output import format_table, keep_covered, parse_listing

_LIMIT = 100_000


def count_lines(request: Request, context: Context) -> Plan:
    """Count with a pattern that matches every line: its counts are the lines of each file."""
    context.require("grep")
    say = context.say
    outputs = yield [
        plan_call(
            "grep",
            pattern="^",
            path=request.folder,
            glob=glob,
            output_mode="count",
            head_limit=_LIMIT,
        )
        for glob in find_patterns(request.text) or [None]
    ]
    listings = [parse_listing(output) for output in outputs]
    rows = {row for listing in listings for row in keep_covered(request, listing.rows)}
    problem = describe_problems([listing.problem for listing in listings], say)
    by_kind: dict[str, list[int]] = {}
    for row in rows:
        path, _, count = row.rpartition(":")
        name = path.rpartition("/")[2]
        suffix = name.rpartition(".")[2] if "." in name[1:] else ""
        by_kind.setdefault(f"`.{suffix}`" if suffix else say("(no suffix)"), []).append(int(count))
    if not rows:
        return combine([say("No text file with content matches."), problem])
    table = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    cells = [(kind, f"{len(counts):,}", f"{sum(counts):,}") for kind, counts in table]
    total = f"{sum(map(sum, by_kind.values())):,}"
    cells.append((say("**Total**"), f"{len(rows):,}", total))
    lead = say(
        "There are {at_least}{count:,} files with {total} lines (empty files not counted):",
        at_least=say("at least ") if problem else "",
        count=len(rows),
        total=total,
    )
    head = (say("Kind"), say("Files"), say("Lines"))
    return combine([lead, format_table(head, cells), problem])
