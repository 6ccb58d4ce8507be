"""Files as tools return them, the gist of their first lines, tables, and children's reports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import shorten

from msgspec import Struct, structs

from mudroom import ToolResultBlock
from mudroom.views import parse_report

from .catalog import NEVER, find_outline_rules, load_data
from .plans import CannotAnswer, Context, Request, Steps, Translator, plan_call
from .requests import find_names, find_patterns, is_chinese

_NUMBERED = re.compile(r"^\s*(\d+)\t(.*)$")
_CUT = re.compile(r"\d+ newest of ([\d,]+) files; use a narrower pattern or a path(?:; )?")
_FILES_PER_TURN = 20
Pairs = list[tuple[str, str]]
HEAD_LINES = 60
MOST_LINES = 2
_LENGTH = 400
_LINE_LENGTH = 60


class FileText(Struct):
    """A file's text as far as it was read; `problem` explains why some is missing."""

    path: str
    text: str
    problem: str = ""


class Listing(Struct):
    """The rows in a result of `glob` or `grep`."""

    rows: list[str]
    total: int = 0  # more than the rows if the list was cut
    problem: str = ""  # why the list is incomplete


def read_files(paths: Iterable[str]) -> Steps[dict[str, FileText]]:
    """Read the start of files, several per turn: about 2,000 lines of each."""
    files: dict[str, FileText] = {}
    waiting = list(paths)
    for start in range(0, len(waiting), _FILES_PER_TURN):
        batch = waiting[start : start + _FILES_PER_TURN]
        outputs = yield [plan_call("read", file_path=path) for path in batch]
        for path, output in zip(batch, outputs, strict=True):
            rows = output.text.split("\n")
            matches = [_NUMBERED.match(row) for row in rows]
            text = "\n".join(match[2] for match in matches if match)
            others = [x.strip(" ()") for x, match in zip(rows, matches, strict=True) if not match]
            problems = [x for x in others if output.error or "offset=" in x or not any(matches)]
            problem = next(filter(None, problems), "").partition("; continue")[0]
            files[path] = FileText(path, text, problem)
    return files


def parse_listing(output: ToolResultBlock) -> Listing:
    """Parse the rows of a list, without the note in parentheses that may end it."""
    rows = [row.removeprefix("./") for row in output.text.split("\n") if row.strip()]
    has_note = rows and rows[-1][0] + rows[-1][-1] == "()"
    note = rows.pop()[1:-1] if has_note else ""
    if output.error:
        return Listing([], 0, note or rows[0])
    cut = _CUT.search(note)
    total = int(cut[1].replace(",", "")) if cut else len(rows)
    for rule, text in load_data("outline")["notes"]:
        note = re.sub(rule, text, note)
    return Listing(rows, total, note)


def find_files(request: Request, say: Translator) -> Steps[tuple[Request, dict[str, str], Listing]]:
    """List the files a request is about, and describe them. A path may be a folder."""
    names = find_names(request.text)
    calls = [plan_call("glob", pattern=f"{x}/**/*", path=request.folder) for x in names]
    outputs = (yield calls) if calls else []
    folders = [x for x, y in zip(names, outputs, strict=True) if parse_listing(y).rows]
    if folders and (len(names) > 1 or request.folder):
        raise CannotAnswer(say("one_folder", path=folders[0]))
    text = request.text.replace(folders[0], f"{folders[0]}/") if folders else request.text
    request = structs.replace(request, text=text, folder=next(iter(folders), request.folder))
    globs = find_patterns(text) or ["**/*"]
    listing = yield from list_files(request, globs)
    count = say.count(listing.total, "file")
    texts = {"globs": say.join(f"`{glob}`" for glob in globs), "count": count}
    return request, {**texts, "place": request.name_place(say)}, listing


def list_files(request: Request, patterns: list[str]) -> Steps[Listing]:
    """List the files that match any glob. `grep` adds text files that `glob` only counts."""
    pattern = join_globs(patterns)
    output = (yield [plan_call("glob", pattern=pattern, path=request.folder)])[0]
    listing = parse_listing(output)
    if listing.problem and not listing.rows:
        raise CannotAnswer(listing.problem)
    if len(listing.rows) < listing.total:
        more = (yield from grep_all(request, [("^", pattern)]))[0]
        listing.rows = list({*listing.rows, *more.rows})
    names = [x for x in (pattern.removeprefix("**/") for pattern in patterns) if "*" not in x]
    missing = [x for x in names if not any(f"/{row}".endswith(f"/{x}") for row in listing.rows)]
    if missing and len(names) < len(patterns):
        raise CannotAnswer(Translator(is_chinese(request.text))("no_path", path=missing[0]))
    if missing and listing.rows:
        listing.problem += f"no file {', '.join(missing)}"
    listing.rows.sort(key=lambda path: ("/" in path, path.rpartition("/")[0], path))
    return listing


def join_globs(patterns: list[str]) -> str:
    """Join globs into one for the files of all. With a slash, names only match at the top."""
    is_path = len(patterns) == 1 and "/" in patterns[0]
    return patterns[0] if is_path else f"{{{','.join([*patterns, '-/-'])}}}"


def grep_all(
    request: Request, searches: Iterable[tuple[str, str]], mode: str | None = None
) -> Steps[list[Listing]]:
    """Search for each pattern in the files matching its glob, in one turn."""
    outputs = yield [
        plan_call("grep", pattern=x, glob=y, path=request.folder, output_mode=mode, head_limit=0)
        for x, y in searches
    ]
    return [parse_listing(output) for output in outputs]


def format_block(rows: list[str], say: Translator, most: int = 60) -> str:
    """Put rows unchanged between two fences, up to a limit, with the number of the others."""
    if not rows:
        return ""
    text = "\n".join(rows[:most])
    fence = "`" * (max([2, *map(len, re.findall("`+", text))]) + 1)
    left = len(rows) - most
    return f"{fence}text\n{text}\n{fence}" + (f"\n{say('more', left=left)}" if left > 0 else "")


def format_table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def describe_file(file: FileText, say: Translator) -> str:
    if file.problem and not file.text:
        return say("no_line_read", error=file.problem)[:_LENGTH]
    count = say.count(file.text.count("\n") + 1, "line")
    if not file.text.strip():
        return say("all_blank", count=count)
    text = file.text if find_outline_rules(file.path).is_source else blank_code(file.text)
    parts = [*_quote_first_words(file.path, text, say), *_quote_definitions(file, text, say)]
    return say("sentence_end").join([file.problem or count, *parts])


def blank_code(text: str) -> str:
    """Blank out code, comments and HTML in Markdown."""
    blocks = load_data("outline")["not_prose"]
    # Keep the line feeds, so that the other lines keep their numbers.
    return re.sub(blocks, lambda match: "\n" * match[0].count("\n"), text)


def _quote_first_words(path: str, text: str, say: Translator) -> list[str]:
    match = re.search(find_outline_rules(path).purpose, text)
    start, end = match.span(match.lastindex or 0) if match else _find_head_comment(text)
    outline = load_data("outline")
    mark = NEVER if match else outline["mark"]
    words = "\n".join(re.sub(mark, "", line).strip() for line in text[start:end].split("\n"))
    quote = re.search(outline["paragraph"], words) or re.search(r"\S.*" if match else NEVER, words)
    if not quote:
        return []
    first = text.count("\n", 0, start) + words.count("\n", 0, quote.start()) + 1
    last = first + quote[0].count("\n")
    key = "on_lines" if last > first else "on_line"
    short = shorten(quote[0], _LENGTH, placeholder="…")
    return [say(key, first=first, last=last, text=short)] if first <= HEAD_LINES else []


def _find_head_comment(text: str) -> tuple[int, int]:
    """Find the first comment other than a licence or setting, with only such before it."""
    outline = load_data("outline")
    head = "\n".join(text.split("\n")[:HEAD_LINES])
    for match in re.finditer(outline["block"], head):
        block = match[0].strip()
        is_comment = bool(re.match(outline["mark"], block))
        words = re.sub(f"(?m){outline['mark']}", "", block).strip()
        if is_comment and words and not re.search(outline["noise"], words):
            return (0, 0) if re.match(outline["attached"], head[match.start() :]) else match.span()
        if block and not is_comment and not re.match(outline["preamble"], block):
            break
    return 0, 0


def _quote_definitions(file: FileText, text: str, say: Translator) -> list[str]:
    """Quote lines of a known form with their numbers, without names that begin with "_"."""
    rules = find_outline_rules(file.path)
    matches = [match for pattern in rules.names for match in re.finditer(pattern, text)]
    numbers: dict[str, int] = {}
    for match in sorted(matches, key=lambda match: match.start()):
        group = match.lastindex or 0
        numbers.setdefault(match[group].strip(), text.count("\n", 0, match.start(group)))
    lines = file.text.split("\n")
    public = dict.fromkeys(n for name, n in numbers.items() if not name.startswith("_"))
    quotes: list[str] = []
    for number in list(public)[:MOST_LINES]:
        line = f"{number + 1}: {lines[number].strip()}"
        line = line if len(line) <= _LINE_LENGTH else f"{line[:_LINE_LENGTH]}…"
        # In Markdown, a fence must be longer than any row of backticks inside.
        marks = "`" * (max([0, *map(len, re.findall("`+", line))]) + 1)
        quotes.append(f"{marks} {line} {marks}" if "`" in line else f"`{line}`")
    return [say("quoted_lines", lines=say.join(quotes))] if quotes else []


def run_children(asked: Pairs, context: Context, *, writes: bool = False) -> Steps[Pairs]:
    """Start a child for each prompt and title. Return each text, and why it did not finish."""
    agent = None if writes else context.reader or None
    outputs = yield [plan_call("task", prompt=x, description=y, agent=agent) for x, y in asked]
    reports = [parse_report(output.text) for output in outputs]
    whole = yield from read_files(report.spill for report in reports if report.spill)
    answers: Pairs = []
    for (_, title), output, report in zip(asked, outputs, reports, strict=True):
        # The engine's warning continues with the report, which is shown anyway.
        warning = report.warning.partition("; what follows is")[0]
        warning = warning or (report.text if output.error else "")
        text = whole[report.spill].text.strip() if report.spill else report.text
        problem = f"⚠ {title}: {warning}" if warning else ""
        answers.append((text if report.warning or not output.error else "", problem))
    return answers
