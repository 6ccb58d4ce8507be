"""Request "summarise": one line about each file."""

from __future__ import annotations

import re

from .catalog import OutlineRules, load_rows
from .children import run_children, split_batches
from .file_outline import describe_file
from .plans import CannotAnswer, Context, Plan, Request, Steps, Translator, combine
from .requests import find_patterns
from .tool_output import Listing, format_table, list_files, read_files

_READ_DIRECTLY = 3


def summarize(request: Request, context: Context) -> Plan:
    """Describe each file in one line; read a few files here, and let children read more."""
    context.require("glob", "read")
    say = context.say
    listing = yield from _list_files(request)
    if not listing.rows:
        return say("no_file")
    is_long = request.delegate or len(listing.rows) > _READ_DIRECTLY
    if is_long and "task" in context.tools:
        answer = yield from _summarize_with_children(listing.rows, context)
    else:
        answer = yield from _summarize_here(listing.rows, say)
    problem = context.describe_problems([listing.problem, listing.describe_cut()])
    return combine([answer, problem])


def _list_files(request: Request) -> Steps[Listing]:
    """Return the files of a list, or all that match the patterns and file names in the request."""
    if listed := re.findall(r"(?m)^- `?([^\n`]+)`?$", request.text):
        return Listing(listed, len(listed))
    return (yield from list_files(request, find_patterns(request.text) or [_find_source_glob()]))


def _find_source_glob() -> str:
    rows = load_rows("languages", "outline", OutlineRules)
    suffixes = [suffix for row in rows if row.is_source for suffix in row.suffixes]
    return f"**/*.{{{','.join(suffixes)}}}"


def _summarize_with_children(files: list[str], context: Context) -> Plan:
    """Let children read the files, one batch each, and merge their tables."""
    say = context.say
    batches = split_batches(files)
    prompts = ["\n- ".join([say("summary_question"), *batch]) for batch in batches]
    titles = [say("summarise_files", count=say.count(len(batch), "file")) for batch in batches]
    answers = yield from run_children(prompts, titles, context)
    rows = [row for answer in answers for row in answer.text.split("\n") if row[:3] == "| `"]
    problems = "\n".join(filter(None, (answer.problem for answer in answers)))
    context.problems.extend(filter(None, [problems]))
    if not rows:
        raise CannotAnswer(problems)
    return combine([_format(rows, len(files), say), problems])


def _summarize_here(files: list[str], say: Translator) -> Plan:
    """Read the files and describe each one."""
    texts = yield from read_files(files)
    if all(file.problem and not file.text for file in texts.values()):
        raise CannotAnswer("\n".join(f"`{path}`: {file.problem}" for path, file in texts.items()))
    table = format_table((), [(f"`{p}`", describe_file(f, say)) for p, f in texts.items()])
    return _format(table.split("\n")[2:], len(files), say)


def _format(rows: list[str], count: int, say: Translator) -> str:
    """Return one table of rows that are already formatted."""
    lead = say("summary_of", rows=f"{len(rows):,}", count=say.count(count, "file"))
    return combine([lead, "\n".join([format_table((say("File"), say("summary")), []), *rows])])
