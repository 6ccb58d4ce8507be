"""The next step of a conversation, as a pure function of its messages."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from pathlib import PurePosixPath

from msgspec import Struct

from mudroom import AssistantMessage, Message, TextBlock, ToolCallBlock, ToolResultBlock
from mudroom.errors import ModelRefused
from mudroom.ports import EMIT_TOOL, SUMMARY_PROMPT, RequestConfig
from mudroom.views import parse_report

from .catalog import DemoFunction, find_outline_rules, load_data, load_rows, matches_any
from .files import (
    MOST_LINES,
    Listing,
    blank_code,
    describe_file,
    find_place,
    format_block,
    format_table,
    grep_all,
    join_globs,
    list_files,
    parse_listing,
    read_files,
)
from .plans import CannotAnswer, Context, Plan, Request, Steps, Translator, combine, plan_call
from .requests import find_patterns, find_symbols, find_unknown_words, is_chinese, parse_prompt
from .technologies import find_technologies

_BATCH = 5
_MAX_BATCH = 40
_MAX_CHILDREN = 16


class ChildAnswer(Struct, frozen=True):
    """The text of a child's report; `problem` is not empty if the child did not finish."""

    text: str
    problem: str


def split_batches(files: list[str]) -> list[list[str]]:
    """Split files into batches of five, or larger ones for many files, keeping their order."""
    size = min(_MAX_BATCH, max(_BATCH, -(-len(files) // _MAX_CHILDREN)))
    return [files[start : start + size] for start in range(0, len(files), size)]


def run_children(
    prompts: list[str], titles: list[str], context: Context, *, writes: bool = False
) -> Steps[list[ChildAnswer]]:
    """Start all children in one turn and return their answers. A cut report is read whole."""
    agent = context.reader if context.reader and not writes else None
    outputs = yield [
        plan_call("task", prompt=prompt, description=title, agent=agent)
        for prompt, title in zip(prompts, titles, strict=True)
    ]
    reports = [parse_report(output.text) for output in outputs]
    whole = yield from read_files(report.spill for report in reports if report.spill)
    answers: list[ChildAnswer] = []
    for title, output, report in zip(titles, outputs, reports, strict=True):
        # The engine's warning continues with the report, which is shown anyway.
        warning = report.warning.partition("; what follows is")[0]
        warning = warning or (report.text if output.error else "")
        text = whole[report.spill].text.strip() if report.spill else report.text
        problem = f"⚠ {title}: {warning}" if warning else ""
        answers.append(ChildAnswer(text if report.warning or not output.error else "", problem))
    return answers


_COMMENT = re.compile(r"\s*(?:#(?!\s*define)|//|/?\*|--|;|%|>>>|\.\.\.)")


def find_symbol(request: Request, context: Context) -> Plan:
    """List the lines that contain a name, those that look like a definition first."""
    context.require("grep")
    say = context.say
    names = find_symbols(request.text)
    name = names[0] if len(names) == 1 else ""
    if not name or ("." in name and find_outline_rules(name).suffixes):
        raise CannotAnswer(say("which_name"))
    plain = re.escape(name).replace(r"\-", "-")  # ripgrep and Python both understand it
    word = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", plain)
    listing = (yield from grep_all(request, [(word, "**/*")], "content"))[0]
    # The list was cut: search for definitions once more, so that they are not what is missing.
    if listing.problem and listing.rows:
        definition = load_data("languages")["keyword_definition"].replace("NAME", plain)
        first = (yield from grep_all(request, [(definition, "**/*")], "content"))[0]
        listing.rows = list(dict.fromkeys([*first.rows, *listing.rows]))
    if listing.problem and not listing.rows:
        raise CannotAnswer(listing.problem)
    problem = context.describe_problems([listing.problem])
    parts = [say("whole_name", name=name)] if re.search(r"\.|::|#", name) else []
    lines = listing.lines
    lines.sort(key=lambda line: not find_outline_rules(line[1]).is_source)
    at_least = say("at_least") if problem else ""
    files = at_least + say.count(len({line[1] for line in lines}), "file")
    count = at_least + say.count(len(lines), "line")
    key = "lines_with_name" if lines else "no_line_with_name"
    summary = say(key, name=name, place=request.name_place(say), count=count, files=files)
    parts.append(f"{summary} {say('left_out_lines')}")
    likely = [line[0] for line in lines if _looks_like_definition(name, line)]
    others = [line[0] for line in lines if line[0] not in likely]
    if likely:
        parts += [say("likely_definitions"), format_block(likely, say)]
    if others:
        parts += [say("other_lines" if likely else "all_lines"), format_block(others, say)]
    return combine([*parts, problem])


def count_lines(request: Request, context: Context) -> Plan:
    """Count files with `glob`, and lines with a pattern that matches every line."""
    context.require("grep", "glob")
    say = context.say
    request = yield from find_place(request, say)
    globs = find_patterns(request.text) or ["**/*"]
    texts = {"globs": say.join(f"`{glob}`" for glob in globs), "place": request.name_place(say)}
    listing = yield from list_files(request, globs)
    if not listing.total:
        return say("no_file", **texts)
    counts = (yield from grep_all(request, [("^", join_globs(globs))], "count"))[0]
    problem = context.describe_problems([listing.problem, counts.problem])
    by_kind: dict[str, list[int]] = {}
    for row in counts.rows:
        path, _, count = row.rpartition(":")
        suffix = PurePosixPath(path).suffix
        name = say("headers") if suffix == ".h" else f"`{suffix}`" if suffix else say("no_suffix")
        by_kind.setdefault(name, []).append(int(count))
    table = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    counted = sum(map(len, by_kind.values()))
    total = sum(map(sum, by_kind.values()))
    at_least = say("at_least") if problem else ""
    numbers = [(kind, len(lines), sum(lines)) for kind, lines in table]
    numbers.append((say("total"), counted, total))
    cells = [(x, f"{at_least}{files:,}", f"{at_least}{lines:,}") for x, files, lines in numbers]
    texts |= {"lines": say.count(total, "line"), "files": say.count(listing.total, "file")}
    lead = say("counts", at_least=at_least, counted=f"{counted:,}", **texts)
    table_text = format_table(map(say, ("kind", "files", "lines")), cells)
    return combine([lead, table_text if counted else "", problem])


def _looks_like_definition(name: str, line: re.Match[str]) -> bool:
    pattern = find_outline_rules(line[1]).definition
    plain = rf"{re.escape(name)}(?!\$)"
    hit = re.search(pattern.replace("NAME", plain), line[3])
    before = line[3][: hit.start()] if hit else "//"
    is_text = "//" in before or any(before.count(quote) % 2 for quote in "\"'`")
    return not is_text and not _COMMENT.match(line[3])


_DEFAULT_PATH = "string_utils.py"
_DEFAULT_FUNCTIONS = 4


def create_module(request: Request, context: Context) -> Plan:
    """Write the module, by a child where `task` is offered, then check it in this run."""
    say = context.say
    path = next(iter(re.findall(r"(?a)[\w/-]+\.py", request.text)), _DEFAULT_PATH)
    functions = _choose_functions(request.text.replace(path, ""))
    if "task" not in context.tools:
        context.require("write", "glob", "read")
        return (yield from _write_module(path, functions, context))
    names = ", ".join(function.name for function in functions)
    prompt = say("create_prompt", path=path, names=names)
    child = (yield from run_children([prompt], [say("create_title")], context, writes=True))[0]
    if child.problem or f"`{path}`" not in child.text:
        raise CannotAnswer(child.problem or child.text)
    return (yield from _check_module(path, functions, context))


def _choose_functions(text: str) -> Sequence[DemoFunction]:
    known = load_rows("demo", "function", DemoFunction)
    names = re.findall(r"(?a)\w+", text)
    return [row for row in known if row.name in names] or known[:_DEFAULT_FUNCTIONS]


def _write_module(path: str, functions: Sequence[DemoFunction], context: Context) -> Plan:
    """Write the module, unless there is such a file, even one that git ignores."""
    say = context.say
    listed, read = yield [plan_call("glob", pattern=path), plan_call("read", file_path=path)]
    if listed.error or parse_listing(listed).rows or not read.error:
        raise CannotAnswer(say("exists", path=path))
    sources = "\n\n\n".join(function.source.strip() for function in functions)
    content = f'"""Small functions on text."""\n\n\n{sources}\n'
    output = (yield [plan_call("write", file_path=path, content=content)])[0]
    if output.error:
        raise CannotAnswer(output.text)
    return say("created", path=path, names=", ".join(function.name for function in functions))


def _check_module(path: str, functions: Sequence[DemoFunction], context: Context) -> Plan:
    say = context.say
    context.require("read")
    file = (yield from read_files([path]))[path]
    if file.problem:
        raise CannotAnswer(say("created_unreadable", path=path, error=file.problem))
    if "bash" not in context.tools:
        raise CannotAnswer(say("not_run", path=path, reason=say("no_bash")))
    cases = [(row.name, *case) for row in functions for case in row.cases]
    script = load_data("demo")["run_cases"].format(path=path, cases=json.dumps(cases))
    command = f"python3 -c {shlex.quote(script)}"
    output = (yield [plan_call("bash", command=command, description=say("run_title"))])[0]
    rows = [line for line in output.text.split("\n") if re.match(r"\| .*(✅|❌) \|$", line)]
    if len(rows) < len(cases):
        reason = output.text.strip().split("\n")[0][:300]
        raise CannotAnswer(say("not_run", path=path, reason=reason))
    lead = say("wrong" if "❌" in "".join(rows) else "verified", path=path)
    head = map(say, ("function_head", "test_input", "expected", "actual", "status"))
    return combine([lead, "\n".join([format_table(head, []), *rows])])


def quote_lines(request: Request, context: Context) -> Plan:
    """Quote lines of files at the top that look like the wanted ones, found ones first."""
    context.require("read", "glob", "grep")
    say = context.say
    most, pattern, *globs = load_data("outline")["quotations"][request.kind]
    top = yield from list_files(request, ["*", ".github/[Cc]*"])
    paths = [x.removeprefix(f"{request.folder}/") for x in _select_files(top.rows, globs)]
    names = [re.sub(r"[^\w.+@/ -]", "?", path) for path in paths]
    searches = [(pattern, join_globs(["-/-", *names]))]
    listing = (yield from grep_all(request, searches, "content"))[0]
    commands = [line for line in listing.lines if "no test specified" not in line[3]]
    groups = groupby(commands, key=lambda line: line[1])
    lines = [line[0] for _, group in groups for line in islice(group, int(most))]
    key = f"{request.kind}_lines" if lines else f"no_{request.kind}_lines"
    lead = say(key, place=request.name_place(say), most=most, names=say.join(globs))
    parts = [lead, format_block(lines, say)]
    if request.kind in load_data("outline")["first_lines"]:
        parts.insert(2 if lines else 0, (yield from _quote_first_lines(request, top.rows, say)))
    return combine([*parts, context.describe_problems([top.problem, listing.problem])])


def _select_files(paths: list[str], globs: list[str]) -> list[str]:
    lower = tuple(glob.lower() for glob in globs)
    return sorted(path for path in paths if matches_any(path.lower(), lower))


def _quote_first_lines(request: Request, top: list[str], say: Translator) -> Plan:
    """Quote the first lines of the licence files, or heading and prose of the README."""
    is_readme = request.kind == "description"
    most, patterns, *globs = load_data("outline")["first_lines"][request.kind]
    links = [f"{request.folder or '.'}/README{suffix}" for suffix in (".md", ".rst", "")]
    paths = _select_files(top, globs)
    paths = paths[:1] or links if is_readme else paths
    rows: list[str] = []
    seen: set[int] = set()
    for path, file in (yield from read_files(paths)).items():
        lines = file.text.split("\n")
        text = blank_code(file.text) if is_readme else file.text
        seen |= {number for number, pattern in enumerate(patterns) if re.search(pattern, text)}
        matches = [m for p in patterns for m in islice(re.finditer(p, text), int(most))]
        numbers = sorted({text.count("\n", 0, match.start()) for match in matches})
        rows += [f"{path.removeprefix('./')}:{n + 1}:{lines[n]}" for n in numbers]
    key = f"{request.kind}_first_lines"
    if not rows:
        return say(f"no_{key}", place=request.name_place(say))
    parts = say.join(say(f"{request.kind}_{number}") for number in sorted(seen))
    return combine([say(key, most=most, parts=parts), format_block(rows, say)])


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


_SUMMARY_HEAD = SUMMARY_PROMPT.partition(",")[0]
_REPOSITORY = re.compile(r"(?m)^Repository: (.+)$")
_PLANS: dict[str, Callable[[Request, Context], Plan]] = {
    "create": create_module,
    "tests": find_technologies,
    "stack": find_technologies,
    "description": quote_lines,
    "run_tests": quote_lines,
    "licence": quote_lines,
    "summarise": summarize,
    "find": find_symbol,
    "count": count_lines,
}


class FinalAnswer(Struct, frozen=True):
    """The text at the end of a run; `is_whole` is False if a part of the prompt is not done."""

    text: str
    is_whole: bool = True


def find_next_step(
    config: RequestConfig, messages: list[Message], *, allow_calls: bool = True
) -> FinalAnswer | tuple[ToolCallBlock, ...]:
    """Return the final answer or the next calls. Raises CannotAnswer; ModelRefused for outputs."""
    if _text_of(messages[-1]).startswith(_SUMMARY_HEAD):
        return FinalAnswer(_summarize_conversation(messages[:-1]))
    text, outputs = _split(messages)
    say = Translator(is_chinese(text))
    names = frozenset(tool.name for tool in config.tools)
    if EMIT_TOOL in names:
        raise ModelRefused(say("no_outputs"), remedy=say("connect_for_outputs"))
    requests, unsupported = parse_prompt(text)
    if not requests:
        raise CannotAnswer(_describe_refusal(unsupported, say))
    repository = _REPOSITORY.search(config.system)
    agents = str([tool.parameters for tool in config.tools if tool.name == "task"])
    reader = "explore" if "'explore'" in agents else ""
    context = Context(names, say, reader, repository[1] if repository else "")
    step = _replay(_run_in_order(requests, unsupported, context), outputs)
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
        words = find_unknown_words(part, "")
        # Of Chinese, which has no spaces, half a word may be left over: name the whole phrase.
        english = [word for word in words if not is_chinese(word)]
        unknown += english or [part.strip(" ?？!！。.")[:60]] * bool(words)
    words = say.join(f"“{word}”" for word in dict.fromkeys(unknown[:8]))
    lead = say("not_understood_words", words=words) if words else say("not_understood")
    return f"{lead}\n{say('abilities')}"


def _run_in_order(
    requests: list[Request], unsupported: list[str], context: Context
) -> Steps[FinalAnswer]:
    say = context.say
    parts: list[str] = []
    refusals: list[str] = []
    for request in requests:
        try:
            parts.append((yield from _run_plan(request, context)))
        except CannotAnswer as error:
            refusals.append(str(error))
    note = say("below_repository", folder=context.repository)
    has_searched = any(request.kind not in ("help", "create") for request in requests)
    notes = [note] if context.repository and has_searched and note not in combine(parts) else []
    if not parts:
        raise CannotAnswer("\n".join([*refusals, *notes]))
    parts = [*notes, *parts]
    refusals += [say("not_done", part=part) for part in unsupported]
    return FinalAnswer(combine([*parts, *refusals]), not refusals and not context.problems)


def _run_plan(request: Request, context: Context) -> Plan:
    """Run the plan of a request. A child does work that reads much, if `task` is offered."""
    if request.kind == "help":
        return f"{context.say('introduction')}\n{context.say('abilities')}"
    wants_child = request.delegate or request.kind in ("tests", "stack")
    if "task" not in context.tools or not wants_child or request.kind in ("create", "summarise"):
        return (yield from _PLANS[request.kind](request, context))
    title = context.say(f"title_{request.kind}")
    child = (yield from run_children([request.text.strip()], [title], context))[0]
    if not child.text:
        raise CannotAnswer(child.problem)
    context.problems.extend(filter(None, [child.problem]))
    return combine([child.text, child.problem])


def _replay(
    plan: Steps[FinalAnswer], outputs: list[list[ToolResultBlock]]
) -> list[ToolCallBlock] | FinalAnswer:
    """Run the plan from its start over the outputs so far. Return its next calls or its answer."""
    # A conversation keeps no state: the same messages lead to the same step, also after a resume.
    try:
        step = next(plan)
        for turn in outputs:
            missing = [ToolResultBlock("", call.name, "no result", error=True) for call in step]
            step = plan.send([*turn, *missing][: len(step)])
    except StopIteration as end:
        return end.value
    return step


def _split(messages: list[Message]) -> tuple[str, list[list[ToolResultBlock]]]:
    """Return the newest prompt and the tool results of each turn since; skip notes beside them."""
    texts: list[str] = []
    turns: list[list[ToolResultBlock]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if not message.tool_calls:
                texts.clear()
                turns.clear()
            continue
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        if results:
            turns.append(results)
        elif not turns and (text := _text_of(message)):
            texts.append(text)
    return "".join(texts[-1:]), turns


def _summarize_conversation(messages: list[Message]) -> str:
    return "\n\n".join(
        f"{'Answered' if isinstance(message, AssistantMessage) else 'Asked'}: {text}"
        for message in messages
        if (text := _text_of(message)) and not text.startswith(_SUMMARY_HEAD)
    )


def _text_of(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
