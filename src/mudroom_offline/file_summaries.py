"""Request "summarise": read the files that match a pattern and say what each one is for."""

from __future__ import annotations

from .children import ChildPrompt, join_answers, run_children, split_batches
from .file_outline import describe_file
from .plans import CannotAnswer, Context, Plan, Request, Steps, StopEarly, Translator, combine
from .project_survey import describe_problems
from .requests import ALL_SOURCE, find_files, find_patterns
from .tool_output import (
    LIST_LIMIT,
    FileText,
    Listing,
    format_table,
    list_files,
    read_files,
)

_READ_DIRECTLY = 3
_BATCH = 20


def summarize(request: Request, context: Context) -> Plan:
    """Describe each file in one line; read a few files here, and let children read more."""
    can_delegate = "task" in context.tools
    context.require("glob", *([] if can_delegate else ["read"]))
    say = context.say
    listing = yield from _list_files(request)
    problem = describe_problems([listing.problem], say)
    if not listing.rows:
        return combine([say("No file matches."), problem])
    if len(listing.rows) > LIST_LIMIT:
        problem = combine([problem, say("Empty files are left out of a list this long.")])
    is_small = len(listing.rows) <= _READ_DIRECTLY and not request.delegate
    if can_delegate and not (is_small and "read" in context.tools):
        answer = yield from _summarize_with_children(listing.rows, context)
    else:
        answer = yield from _summarize_here(listing.rows, say)
    return combine([answer, problem])


def _list_files(request: Request) -> Steps[Listing]:
    """Return the files of a list, or all that match the patterns, or the single files named."""
    names = find_files(request.text)
    patterns = find_patterns(request.text)
    if names and (not patterns or "\n- " in request.text):
        return Listing(names)
    return (yield from list_files(request, patterns or [ALL_SOURCE], own_only=not patterns))


def _summarize_with_children(files: list[str], context: Context) -> Plan:
    """Let children read the files, one batch each, and merge their tables."""
    say = context.say
    question = say("Read these files and summarise what each one does, in a table:")
    work: list[ChildPrompt] = []
    for batch in split_batches(files):
        listed = "\n".join(f"- {path}" for path in batch)
        title = say("Summarise {count} files", count=len(batch))
        folder = batch[0].rpartition("/")[0]
        if folder and all(path.startswith(f"{folder}/") for path in batch):
            title = say("{title} in {folder}", title=title, folder=folder)
        work.append(ChildPrompt(f"{question}\n{listed}", title))
    answers = yield from run_children(work, context)
    rows = [row for answer in answers for row in answer.text.split("\n") if row[:3] == "| `"]
    if not rows:
        raise CannotAnswer(join_answers(answers))
    problems = "\n".join(filter(None, (answer.problem for answer in answers)))
    return combine([_format(rows, files, say), problems])


def _summarize_here(files: list[str], say: Translator) -> Plan:
    """Read the files in batches. When the run is stopped, describe those read until then."""
    texts: dict[str, FileText] = {}
    for start in range(0, len(files), _BATCH):
        try:
            texts |= yield from read_files(files[start : start + _BATCH])
        except StopEarly:
            break
    table = format_table((), [(f"`{p}`", describe_file(f, say)) for p, f in texts.items()])
    return _format(table.split("\n")[2:], files, say)


def _format(rows: list[str], files: list[str], say: Translator) -> str:
    """Return one table of rows that are already formatted, and the files without a row."""
    lead = say("Summary of {count} files:", count=len(rows))
    table = [format_table((say("File"), say("Summary")), []), *rows]
    text = "\n".join(table)
    left = [path for path in files if f"| `{path}` |" not in text]
    note = say(
        "Not summarised: {count} files ({files}).", count=len(left), files=say.join_files(left)
    )
    return combine([lead, text, note if left else ""])
