"""The next step of a conversation, as a pure function of its messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby, islice
from pathlib import PurePosixPath

from msgspec import Struct

from mudroom import AssistantMessage, Message, TextBlock, ToolCallBlock, ToolResultBlock
from mudroom.errors import ModelRefused
from mudroom.ports import EMIT_TOOL, SUMMARY_PROMPT, RequestConfig

from . import files, requests, writing
from .catalog import find_outline_rules, load_data, matches_any
from .files import format_block, format_table, grep_all, read_files
from .plans import CannotAnswer, Context, Plan, Request, Steps, Translator, combine, plan_call
from .technologies import find_technologies

_BATCH = 5
_MAX_BATCH = 40
_MAX_CHILDREN = 16
_READ_DIRECTLY = 3
_MOST_FILES = 400
_LINE = re.compile(r"(.+?):(\d+):(.*)")  # of `grep`: path, number, text
_COMMENT = re.compile(r"\s*(?:#(?!\s*define)|//|/?\*|--|;|%|>>>|\.\.\.)")


def split_batches(paths: list[str]) -> list[list[str]]:
    """Split files into batches of five, or larger ones for many files, keeping their order."""
    size = min(_MAX_BATCH, max(_BATCH, -(-len(paths) // _MAX_CHILDREN)))
    return [paths[start : start + size] for start in range(0, len(paths), size)]


def find_symbol(request: Request, context: Context) -> Plan:
    """List the lines that contain a name, likely definitions first."""
    context.require("grep")
    say = context.say
    name = names[0] if len(names := requests.find_symbols(request.text)) == 1 else ""
    if not name or ("." in name and find_outline_rules(name).suffixes):
        raise CannotAnswer(say("which_name"))
    plain = re.sub(r"\\([- ])", r"\1", re.escape(name))  # ripgrep and Python both understand it
    word = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", plain)
    listing = (yield from grep_all(request, [(word, "**/*")], "content"))[0]
    # The list was cut: search again for definitions, so that those are not missing.
    if listing.problem and listing.rows:
        definition = load_data("languages")["keyword_definition"].replace("NAME", plain)
        first = (yield from grep_all(request, [(definition, "**/*")], "content"))[0]
        listing.rows = list(dict.fromkeys([*first.rows, *listing.rows]))
    if listing.problem and not listing.rows:
        raise CannotAnswer(listing.problem)
    problem = context.describe_problems([listing.problem])
    parts = [say("whole_name", name=name)] if re.search(r"\.|::|#", name) else []
    lines = list(filter(None, map(_LINE.fullmatch, listing.rows)))
    lines.sort(key=lambda line: not find_outline_rules(line[1]).is_source)
    at_least = say("at_least") if problem else ""
    files = at_least + say.count(len({line[1] for line in lines}), "file")
    count = at_least + say.count(len(lines), "line")
    key = "lines_with_name" if lines else "no_line_with_name"
    summary = say(key, name=name, place=request.name_place(say), count=count, files=files)
    parts.append(f"{summary} {say('left_out_lines')}")
    likely = [line[0] for line in lines if _looks_like_definition(name, line)]
    others = [line[0] for line in lines if line[0] not in likely]
    parts += [say("likely_definitions"), format_block(likely, say)] if likely else []
    rest = say("other_lines" if likely else "all_lines")
    parts += [rest, format_block(others, say)] if others else []
    return combine([*parts, problem])


def list_or_count(request: Request, context: Context) -> Plan:
    """List files or count them with `glob`, and lines with a pattern that matches every line."""
    context.require("grep", "glob")
    say = context.say
    request, texts, listing = yield from files.find_files(request, say)
    globs = requests.find_patterns(request.text) or ["**/*"]
    if not listing.total:
        return say("no_file", **texts)
    if request.kind == "list":
        problem = context.describe_problems([listing.problem])
        return combine([say("paths", **texts), format_block(listing.rows, say, 200), problem])
    counts = (yield from grep_all(request, [("^", files.join_globs(globs))], "count"))[0]
    problem = context.describe_problems([listing.problem, counts.problem])
    by_kind: dict[str, list[int]] = {}
    for row in counts.rows:
        path, _, count = row.rpartition(":")
        suffix = PurePosixPath(path).suffix
        name = say("headers") if suffix == ".h" else f"`{suffix}`" if suffix else say("no_suffix")
        for kind in (name, say("total")):
            by_kind.setdefault(kind, []).append(int(count))
    kinds = sorted(by_kind, key=lambda kind: (kind == say("total"), -sum(by_kind[kind]), kind))
    at_least = say("at_least") if problem else ""
    cells = [(x, *(f"{at_least}{f(by_kind[x]):,}" for f in (len, sum))) for x in kinds]
    every = by_kind.get(say("total"), [])
    numbers = {"counted": f"{len(every):,}", "lines": say.count(sum(every), "line")}
    lead = say("counts", at_least=at_least, **numbers, **texts)
    table_text = format_table(map(say, ("kind", "files", "lines")), cells)
    return combine([lead, table_text if every else "", problem])


def run_command(request: Request, context: Context) -> Plan:
    """Run the command for a kind of request, with the files it names, and quote the output."""
    context.require("bash")
    command = _COMMANDS[request.kind]
    if "NAME" in command:
        name = " ".join(requests.find_symbols(request.text))
        if not name.isidentifier():
            raise CannotAnswer(context.say("which_name"))
        command = command.replace("NAME", name)
    if "FILES" in command:
        names = [name.removeprefix("**/") for name in requests.find_patterns(request.text)]
        paths = [name if "/" in name else f"{request.folder or '.'}/{name}" for name in names]
        paths = paths or [request.folder or "."] * command.startswith("git ")
        if not paths or any("*" in path.rstrip("*") for path in paths):
            raise CannotAnswer(context.say("which_file"))
        command = command.replace("FILES", " ".join(paths))
    elif request.folder:
        raise CannotAnswer(context.say("no_folder_for", command=command, folder=request.folder))
    output = (yield [plan_call("bash", command=command)])[0]
    if output.error:
        raise CannotAnswer(f"`{command}`: {output.text.strip()}")
    lines = format_block(output.text.rstrip().split("\n"), context.say, 400)
    return combine([context.say("command_output", command=command), lines])


def _looks_like_definition(name: str, line: re.Match[str]) -> bool:
    pattern = find_outline_rules(line[1]).definition
    plain = rf"{re.escape(name)}(?!\$)"
    hit = re.search(pattern.replace("NAME", plain), line[3])
    before = line[3][: hit.start()] if hit else "//"
    is_text = "//" in before or any(before.count(quote) % 2 for quote in "\"'`")
    return not is_text and not _COMMENT.match(line[3])


def quote_lines(request: Request, context: Context) -> Plan:
    """Quote lines of top-level files that look like the wanted ones, found ones first."""
    context.require("read", "glob", "grep")
    say = context.say
    most, pattern, *globs = load_data("outline")["quotations"][request.kind]
    below = load_data("outline")["below"].get(request.kind, [])
    top = yield from files.list_files(request, ["*", ".github/[Cc]*", *below])
    paths = [x.removeprefix(f"{request.folder}/") for x in _select_files(top.rows, globs)]
    wanted = files.join_globs(["-/-", *(re.sub(r"[^\w.+@/ -]", "?", path) for path in paths)])
    listing = (yield from grep_all(request, [(pattern, wanted)], "content"))[0]
    found = filter(None, map(_LINE.fullmatch, listing.rows))
    commands = [line for line in found if "no test specified" not in line[3]]
    lines = [x[0] for _, y in groupby(commands, key=lambda x: x[1]) for x in islice(y, int(most))]
    key = f"{request.kind}_lines" if lines else f"no_{request.kind}_lines"
    lead = say(key, place=request.name_place(say), most=most, names=say.join(globs))
    parts = [lead, format_block(lines, say)]
    if request.kind in load_data("outline")["first_lines"]:
        parts.insert(2 if lines else 0, (yield from _quote_first_lines(request, top.rows, say)))
    return combine([*parts, context.describe_problems([top.problem, listing.problem])])


def _select_files(paths: list[str], globs: list[str]) -> list[str]:
    return sorted(x for x in paths if matches_any(x.lower(), tuple(map(str.lower, globs))))


def _quote_first_lines(request: Request, top: list[str], say: Translator) -> Plan:
    """Quote the first lines of the licence files, or heading and prose of the README."""
    is_readme = request.kind == "description"
    most, patterns, *globs = load_data("outline")["first_lines"][request.kind]
    paths = _select_files(top, globs)
    if is_readme:
        paths = paths[:1] or [f"{request.folder or '.'}/README{x}" for x in (".md", ".rst", "")]
    rows: list[str] = []
    for path, file in (yield from read_files(paths)).items():
        lines = file.text.split("\n")
        text = files.blank_code(file.text) if is_readme else file.text
        matches = [m for p in patterns for m in islice(re.finditer(p, text), int(most))]
        numbers = sorted({text.count("\n", 0, match.start()) for match in matches})
        rows += [f"{path.removeprefix('./')}:{n + 1}:{lines[n]}" for n in numbers]
    key = f"{request.kind}_first_lines"
    lead = say(key if rows else f"no_{key}", most=most, place=request.name_place(say))
    return combine([lead, format_block(rows, say)])


def summarize(request: Request, context: Context) -> Plan:
    """Describe each file in one line; read a few files here, and let children read more."""
    context.require("glob", "read")
    say = context.say
    texts: dict[str, str] = {}
    if listed := re.findall(r"(?m)^- `?([^\n`]+)`?$", request.text):
        listing = files.Listing(listed, len(listed))
    else:
        request, texts, listing = yield from files.find_files(request, say)
    if not listing.rows:
        return say("no_file", **texts)
    if len(listing.rows) > _MOST_FILES:
        raise CannotAnswer(say("too_many", most=_MOST_FILES, **texts))
    if "task" in context.tools and (request.delegate or len(listing.rows) > _READ_DIRECTLY):
        rows, problems = yield from _summarize_with_children(listing.rows, context)
    else:
        lines = (yield from read_files(listing.rows)).items()
        table = format_table((), [(f"`{x}`", files.describe_file(file, say)) for x, file in lines])
        rows, problems = table.split("\n")[2:], ""
    lead = say("summary_of", rows=f"{len(rows):,}", **texts) if texts else ""
    table = "\n".join([format_table((say("File"), say("summary")), []), *rows])
    note = context.describe_problems([listing.problem])
    limits = say("summary_limits", most=files.MOST_LINES) if texts else ""
    return combine([lead, table, limits, problems, note])


def _summarize_with_children(paths: list[str], context: Context) -> Steps[tuple[list[str], str]]:
    """Let children read the files, one batch each. Return rows of their tables, and problems."""
    say = context.say
    batches = split_batches(paths)
    prompts = ["\n- ".join([say("summary_question"), *batch]) for batch in batches]
    names = [
        " … ".join(dict.fromkeys(x.rpartition("/")[2] for x in (y[0], y[-1]))) for y in batches
    ]
    titles = [say("summarise_files", files=name) for name in names]
    answers = yield from files.run_children(list(zip(prompts, titles, strict=True)), context)
    rows = [row for text, _ in answers for row in text.split("\n") if row[:3] == "| `"]
    problems = "\n".join(filter(None, (problem for _, problem in answers)))
    context.problems.extend(filter(None, [problems]))
    if not rows:
        raise CannotAnswer(problems)
    return rows, problems


Turns = list[list[ToolResultBlock]]
_SUMMARY_HEAD = SUMMARY_PROMPT.partition(",")[0]
_REPOSITORY = re.compile(r"(?m)^Repository: (.+)$")
_COMMANDS = {x["name"]: x["command"] for x in load_data("intents")["intent"] if "command" in x}
_PLANS: dict[str, Callable[[Request, Context], Plan]] = {
    **dict.fromkeys(_COMMANDS, run_command),
    **dict.fromkeys(load_data("outline")["quotations"], quote_lines),
    **dict.fromkeys(("tests", "stack"), find_technologies),
    **dict.fromkeys(("count", "list"), list_or_count),
    **dict.fromkeys(("write", "append", "replace"), writing.change_file),
    "create": writing.create_module,
    "save": writing.save_answer,
    "summarise": summarize,
    "find": find_symbol,
}
_SEARCHES = {x["name"] for x in load_data("intents")["intent"]} - {*_COMMANDS, "help"}


class FinalAnswer(Struct, frozen=True):
    """The text at the end of a run; `is_whole` is False if part of the prompt is not done."""

    text: str
    is_whole: bool = True


def find_next_step(
    config: RequestConfig, messages: list[Message], *, allow_calls: bool = True
) -> FinalAnswer | tuple[ToolCallBlock, ...]:
    """Find the final answer or the next calls. Raises CannotAnswer; ModelRefused for outputs."""
    if _text_of(messages[-1]).startswith(_SUMMARY_HEAD):
        texts = [
            f"{'Answered' if isinstance(x, AssistantMessage) else 'Asked'}: {text}"
            for x in messages
            if (text := _text_of(x)) and not text.startswith(_SUMMARY_HEAD)
        ]
        return FinalAnswer("\n\n".join(texts))
    text, outputs = _split(messages)
    say = Translator(requests.is_chinese(text))
    names = frozenset(tool.name for tool in config.tools)
    if EMIT_TOOL in names:
        raise ModelRefused(say("no_outputs"), remedy=say("connect_for_outputs"))
    asked, unsupported = requests.parse_prompt(text)
    if not asked:
        raise CannotAnswer(_describe_refusal(unsupported, say))
    repository = _REPOSITORY.search(config.system)
    agents = str([tool.parameters for tool in config.tools if tool.name == "task"])
    reader = "explore" if "'explore'" in agents else ""
    context = Context(names, say, reader, repository[1] if repository else "")
    step = _replay(_run_in_order(asked, unsupported, context), outputs)
    if isinstance(step, FinalAnswer):
        return step
    if not allow_calls:
        return FinalAnswer(say("stopped"), is_whole=False)
    return tuple(
        ToolCallBlock(f"off_{len(messages)}_{number}", call.name, call.arguments)
        for number, call in enumerate(step, 1)
    )


def _describe_refusal(unsupported: list[str], say: Translator) -> str:
    unknown: list[str] = []
    for part in unsupported:
        words = requests.find_unknown_words(part, "")
        # Chinese has no spaces, so half a word may be left over: name the whole phrase.
        english = [word for word in words if not requests.is_chinese(word)]
        unknown += english or [part.strip(" ?？!！。.")[:60]] * bool(words)
    words = say.join(f"“{word}”" for word in dict.fromkeys(unknown[:8]))
    lead = say("not_understood_words", words=words) if words else say("not_understood")
    return f"{lead}\n{say('abilities')}"


def _run_in_order(asked: list[Request], left: list[str], context: Context) -> Steps[FinalAnswer]:
    say = context.say
    refusals: list[str] = []
    for request in asked:
        try:
            context.parts.append((yield from _run_plan(request, context)))
        except CannotAnswer as error:
            refusals.append(str(error))
    note = say("below_repository", folder=context.repository)
    is_noted = not context.repository or note in combine(context.parts)
    notes = [note] if any(x.kind in _SEARCHES for x in asked) and not is_noted else []
    if not context.parts:
        raise CannotAnswer("\n".join([*refusals, *notes]))
    refusals += [say("not_done", part=part) for part in left]
    is_whole = not refusals and not context.problems
    return FinalAnswer(combine([*notes, *context.parts, *refusals]), is_whole)


def _run_plan(request: Request, context: Context) -> Plan:
    """Run a request's plan. If `task` is offered, a child does work that reads a lot."""
    if request.kind == "help":
        return f"{context.say('introduction')}\n{context.say('abilities')}"
    wants_child = request.delegate or request.kind in ("tests", "stack")
    is_own = request.kind in ("create", "write", "append", "replace", "save", "summarise")
    if "task" not in context.tools or not wants_child or is_own:
        return (yield from _PLANS[request.kind](request, context))
    title = context.say(f"title_{request.kind}")
    text, problem = (yield from files.run_children([(request.text.strip(), title)], context))[0]
    if not text:
        raise CannotAnswer(problem)
    context.problems.extend(filter(None, [problem]))
    return combine([text, problem])


def _replay(plan: Steps[FinalAnswer], outputs: Turns) -> list[ToolCallBlock] | FinalAnswer:
    """Replay the plan from its start over the outputs so far. Return its next calls or answer."""
    # A conversation keeps no state: the same messages lead to the same step, also after a resume.
    try:
        step = next(plan)
        for turn in outputs:
            missing = [ToolResultBlock("", call.name, "no result", error=True) for call in step]
            step = plan.send([*turn, *missing][: len(step)])
    except StopIteration as end:
        return end.value
    return step


def _split(messages: list[Message]) -> tuple[str, Turns]:
    """Split off the newest prompt, and the tool results of each turn since, without notes."""
    ends = [
        n for n, x in enumerate(messages) if isinstance(x, AssistantMessage) if not x.tool_calls
    ]
    last = max(ends, default=-1)
    newest = [x for x in messages[last + 1 :] if not isinstance(x, AssistantMessage)]
    turns = [[y for y in x.content if isinstance(y, ToolResultBlock)] for x in newest]
    first = next((n for n, turn in enumerate(turns) if turn), len(turns))
    texts = [text for x in newest[:first] if (text := _text_of(x))]
    return "".join(texts[-1:]), list(filter(None, turns))


def _text_of(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
