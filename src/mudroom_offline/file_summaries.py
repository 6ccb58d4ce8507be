"""Request "summarise": read the files that match a pattern and say what each one is for."""

from __future__ import annotations

from .children import ChildPrompt, list_problems, run_children, split_batches
from .file_outline import describe_file
from .plans import (
    CannotAnswer,
    Context,
    Plan,
    Request,
    Steps,
    StopEarly,
    Translator,
    combine,
)
from .requests import (
    find_exclusions,
    find_listed_files,
    find_named_files,
    find_patterns,
    find_scopes,
    source_suffixes,
)
from .tool_output import (
    FileText,
    format_table,
    is_own_file,
    list_files,
    parse_table,
    read_files,
)

_READ_DIRECTLY = 3
_BATCH = 20


def summarize(request: Request, context: Context) -> Plan:
    """Read the files in this run and describe each in one line."""
    context.require("read", "glob")
    files = yield from _find_files(request)
    return (yield from _summarize_files(request, files, context))


def summarize_with_children(request: Request, context: Context) -> Plan:
    """List the files here and let children read them, one batch each. A few files are read here."""
    say = context.say
    context.require("glob")
    files = yield from _find_files(request)
    is_small = len(files) <= _READ_DIRECTLY and "read" in context.tools
    if not files or (is_small and not request.delegate):
        return (yield from _summarize_files(request, files, context))
    work: list[ChildPrompt] = []
    question = say("Read these files and summarise what each one does, in a table:")
    for batch in split_batches(files):
        listed = "\n".join(f"- {path}" for path in batch)
        title = say("Summarise {batch_count} files", batch_count=len(batch))
        folder = batch[0].rpartition("/")[0]
        if folder and all(path.startswith(f"{folder}/") for path in batch):
            title = say("{title} in {folder}", title=title, folder=folder)
        work.append(ChildPrompt(f"{question}\n{listed}", title))
    reports = yield from run_children(work, context)
    texts = [report.text for report in reports]
    return combine([_merge_tables(texts, request, say), *list_problems(reports)])


def _summarize_files(request: Request, files: list[str], context: Context) -> Plan:
    say = context.say
    if not files:
        patterns = say.join([f"`{pattern}`" for pattern in find_patterns(request.text)[:3]])
        return say("No file matches {patterns}.", patterns=patterns)
    texts = yield from _read_until_stopped(files)
    rows = [(f"`{path}`", describe_file(file, say)) for path, file in texts.items()]
    left = len(files) - len(rows)
    note = say("Not read, because the run was stopped: {left} files.", left=left)
    table = format_table(_table_head(say), rows)
    return combine([_lead(request, len(files), say), table, note if left else ""])


def _find_files(
    request: Request,
) -> Steps[list[str]]:
    """Return the files a request names: a list, single files, or all that match its patterns."""
    listed = find_listed_files(request.text)
    if listed:
        return listed
    patterns = find_patterns(request.text)
    scopes = find_scopes(request.text) or [""]
    excluded = tuple(find_exclusions(request.text))
    files: list[str] = []
    for pattern in patterns:
        for scope in [""] if "/" in pattern.removeprefix("**/") else scopes:
            files += yield from list_files(pattern, scope)
    if not files:
        return find_named_files(request.text)
    wants_all = len(patterns) == len(source_suffixes())
    return [
        path
        for path in dict.fromkeys(files)
        if not (excluded and path.startswith(excluded)) and (is_own_file(path) or not wants_all)
    ]


def _read_until_stopped(
    files: list[str],
) -> Steps[dict[str, FileText]]:
    """Read the files in batches. When the run is stopped, return what was read until then."""
    texts: dict[str, FileText] = {}
    for start in range(0, len(files), _BATCH):
        try:
            texts |= yield from read_files(files[start : start + _BATCH])
        except StopEarly:
            break
    return texts


def _lead(request: Request, count: int, say: Translator) -> str:
    patterns = find_patterns(request.text)
    if find_listed_files(request.text) or not patterns:
        return say("Summary of {count} files:", count=count)
    kinds = say.join([f"`{pattern.removeprefix('**/')}`" for pattern in patterns[:3]])
    if len(patterns) > 3:
        kinds = say("source")
    english = f"all {count} {kinds} files" if count > 1 else f"the one {kinds} file"
    return say("Here is a summary of {english}:", english=english, count=count, kinds=kinds)


def _merge_tables(texts: list[str], request: Request, say: Translator) -> str:
    """Return the tables of several children as one summary with a heading for each folder."""
    rows = {row[0].strip("`"): row[1] for text in texts for row in parse_table(text, 2)}
    if not rows:
        raise CannotAnswer("\n\n".join(texts))
    folders: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(rows, key=lambda path: ("/" in path, path.rpartition("/")[0], path)):
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append((f"`{name}`", rows[path]))
    parts = [_lead(request, len(rows), say)]
    for folder, entries in folders.items():
        heading = f"{folder}/" if folder else say("Top level")
        parts.append(f"## {heading}\n{format_table(_table_head(say), entries)}")
    return combine(parts)


def _table_head(say: Translator) -> tuple[str, str]:
    return say("File"), say("Summary")
