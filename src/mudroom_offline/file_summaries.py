"""Request "summarise": one line about each file."""

from __future__ import annotations

import re

from .children import run_children, split_batches
from .file_outline import MOST_LINES, describe_file
from .plans import CannotAnswer, Context, Plan, Request, Steps, combine
from .requests import find_patterns
from .tool_output import Listing, find_place, format_table, list_files, read_files

_READ_DIRECTLY = 3
_MOST_FILES = 400


def summarize(request: Request, context: Context) -> Plan:
    """Describe each file in one line; read a few files here, and let children read more."""
    context.require("glob", "read")
    say = context.say
    listed = re.findall(r"(?m)^- `?([^\n`]+)`?$", request.text)
    request = request if listed else (yield from find_place(request, say))
    globs = [] if listed else find_patterns(request.text) or ["**/*"]
    listing = Listing(listed, len(listed)) if listed else (yield from list_files(request, globs))
    texts = {"globs": say.join(f"`{glob}`" for glob in globs), "place": request.name_place(say)}
    if not listing.rows:
        return say("no_file", **texts)
    if len(listing.rows) > _MOST_FILES:
        count = say.count(listing.total, "file")
        raise CannotAnswer(say("too_many", count=count, most=_MOST_FILES, **texts))
    if "task" in context.tools and (request.delegate or len(listing.rows) > _READ_DIRECTLY):
        rows, problems = yield from _summarize_with_children(listing.rows, context)
    else:
        lines = (yield from read_files(listing.rows)).items()
        table = format_table((), [(f"`{x}`", describe_file(file, say)) for x, file in lines])
        rows, problems = table.split("\n")[2:], ""
    texts |= {"rows": f"{len(rows):,}", "count": say.count(listing.total, "file")}
    lead = "" if listed else say("summary_of", **texts)
    table = "\n".join([format_table((say("File"), say("summary")), []), *rows])
    note = context.describe_problems([listing.problem])
    limits = "" if listed else say("summary_limits", most=MOST_LINES)
    return combine([lead, table, limits, problems, note])


def _summarize_with_children(files: list[str], context: Context) -> Steps[tuple[list[str], str]]:
    """Let children read the files, one batch each. Return rows of their tables, and problems."""
    say = context.say
    batches = split_batches(files)
    prompts = ["\n- ".join([say("summary_question"), *batch]) for batch in batches]
    ends = [dict.fromkeys((batch[0], batch[-1])) for batch in batches]
    names = [" … ".join(file.rpartition("/")[2] for file in pair) for pair in ends]
    titles = [say("summarise_files", files=name) for name in names]
    answers = yield from run_children(prompts, titles, context)
    rows = [row for answer in answers for row in answer.text.split("\n") if row[:3] == "| `"]
    problems = "\n".join(filter(None, (answer.problem for answer in answers)))
    context.problems.extend(filter(None, [problems]))
    if not rows:
        raise CannotAnswer(problems)
    return rows, problems
