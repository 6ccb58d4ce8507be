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
    parse_table,
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
    rows: dict[str, str] = {}
    for answer in answers:
        rows |= parse_table(answer.text)
    if not rows:
        raise CannotAnswer(join_answers(answers))
    summaries = {path: rows[f"`{path}`"] for path in files if f"`{path}`" in rows}
    missing = [path for path in files if path not in summaries]
    problems = "\n".join(filter(None, (answer.problem for answer in answers)))
    return combine([_format(summaries, say), _describe_missing(missing, say), problems])


def _summarize_here(files: list[str], say: Translator) -> Plan:
    """Read the files in batches. When the run is stopped, describe those read until then."""
    texts: dict[str, FileText] = {}
    for start in range(0, len(files), _BATCH):
        try:
            texts |= yield from read_files(files[start : start + _BATCH])
        except StopEarly:
            break
    rows = [(f"`{path}`", describe_file(file, say)) for path, file in texts.items()]
    lead = say("Summary of {count} files:", count=len(rows))
    table = format_table(_table_head(say), rows)
    return combine([lead, table, _describe_missing(files[len(rows) :], say)])


def _format(summaries: dict[str, str], say: Translator) -> str:
    """Return the summaries with a heading for each folder."""
    folders: dict[str, list[tuple[str, str]]] = {}
    for path, summary in summaries.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append((f"`{name}`", summary))
    parts = [say("Summary of {count} files:", count=len(summaries))]
    for folder, entries in folders.items():
        heading = f"{folder}/" if folder else say("Top level")
        parts.append(f"## {heading}\n{format_table(_table_head(say), entries)}")
    return combine(parts)


def _describe_missing(files: list[str], say: Translator) -> str:
    if not files:
        return ""
    return say(
        "Not summarised: {count} files ({files}).", count=len(files), files=say.join_files(files)
    )


def _table_head(say: Translator) -> tuple[str, str]:
    return say("File"), say("Summary")
