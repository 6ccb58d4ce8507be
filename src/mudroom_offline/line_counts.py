"""Request "count": how many files and lines there are of each kind."""

from __future__ import annotations

from .plans import Context, Plan, Request, combine
from .requests import find_patterns
from .tool_output import describe_problems, format_table, list_files, search_all


def count_lines(request: Request, context: Context) -> Plan:
    """Count files with `glob`, and lines with a pattern that matches every line."""
    context.require("grep", "glob")
    say = context.say
    globs = find_patterns(request.text) or ["**/*"]
    listing = yield from list_files(request, globs)
    if not listing.total:
        return say("no_file")
    listings = yield from search_all(request, [("^", glob) for glob in globs], "count")
    problem = describe_problems([x.problem for x in [listing, *listings]], say)
    by_kind: dict[str, list[int]] = {}
    for row in {row for listing in listings for row in listing.rows}:
        path, _, count = row.rpartition(":")
        name = path.rpartition("/")[2]
        suffix = name.rpartition(".")[2] if "." in name[1:] else ""
        by_kind.setdefault(f"`.{suffix}`" if suffix else say("no_suffix"), []).append(int(count))
    table = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    cells = [(kind, f"{len(counts):,}", f"{sum(counts):,}") for kind, counts in table]
    counted = sum(map(len, by_kind.values()))
    lines = sum(map(sum, by_kind.values()))
    cells.append((say("total"), f"{counted:,}", f"{lines:,}"))
    at_least = say("at_least") if problem else ""
    lead = say(
        "counts",
        files=say.count(listing.total, "file"),
        counted=f"{at_least}{counted:,}",
        lines=f"{at_least}{say.count(lines, 'line')}",
    )
    head = (say("kind"), say("files"), say("lines"))
    return combine([lead, format_table(head, cells) if counted else "", problem])
