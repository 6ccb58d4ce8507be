"""Request "create": write one small Python module with known functions, then read and run it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from .catalog import DemoFunction, load_data, load_rows, words
from .children import ChildPrompt, join_answers, run_children
from .plans import CannotAnswer, Context, Plan, Request, Steps, combine, plan_call
from .tool_output import format_table, parse_listing, read_files

_PATH = re.compile(r"(?<![\w*/.-])(?:[\w-][\w.-]*/)*[\w-]+\.py\b")
_WORD = re.compile(r"[A-Za-z_]\w*|[\u3400-\u9fff]+|[?？]")
_FILLER = sorted(words("module_words"), key=len, reverse=True)
_CHINESE_FILLER = re.compile("|".join(word for word in _FILLER if not word.isascii()))
_PYTHON_MISSING = re.compile(r"(?i)python3: (?:command )?not found|exit code 127")


def create_module(request: Request, context: Context) -> Plan:
    """Write the module, by a child where `task` is offered, then check it in this run."""
    say = context.say
    functions = _choose_functions(request.text, context)
    paths = _PATH.findall(request.text)
    names = ", ".join(function.name for function in functions)
    if "task" not in context.tools:
        context.require("write", "glob", "read")
        path = yield from _write_module(paths[0] if paths else "string_utils.py", functions)
        return say("Created `{path}` with {names}.", path=path, names=names)
    place = f" `{paths[0]}`" if paths else ""
    prompt = say(
        "Create a new Python module{place} with the functions {names}.", place=place, names=names
    )
    work = ChildPrompt(prompt, say("Create a new module"))
    answers = yield from run_children([work], context, writes=True)
    created = re.search(r"`([^`\s]+\.py)`", answers[0].text)
    if not created:
        raise CannotAnswer(join_answers(answers))
    checked = yield from _check_module(created[1], functions, context)
    return combine([checked, answers[0].problem])


def _choose_functions(text: str, context: Context) -> Sequence[DemoFunction]:
    """Return the functions to write. Raise CannotAnswer when a word of the request is unknown.

    So a question, a negation, another language or another purpose never leads to a file.
    """
    known = {function.name: function for function in load_rows("demo", "function", DemoFunction)}
    bare = _PATH.sub(" ", text)
    names = [name for name in re.findall(r"[A-Za-z_]\w*", bare) if name in known]
    rest = _WORD.findall(_CHINESE_FILLER.sub(" ", bare))
    unknown = [word for word in rest if word not in known and word.lower() not in _FILLER]
    if unknown or len(_PATH.findall(text)) > 1:
        raise CannotAnswer(
            context.say(
                "No module was written: the offline model cannot do “{unknown}”. It follows only a "
                'plain instruction like "create a new module, then verify it from here". '
                "It can write: {known}.",
                unknown=" ".join(unknown) or text.strip(),
                known=", ".join(known),
            )
        )
    return [known[name] for name in dict.fromkeys(names or load_data("demo")["default"])]


def _write_module(path: str, functions: Sequence[DemoFunction]) -> Steps[str]:
    """Write the module to the path, or the same with a number, that no file has; return it."""
    stem = path.removesuffix(".py")
    candidates = [path, *(f"{stem}_{number}.py" for number in range(2, 10))]
    listings = yield [plan_call("glob", pattern=candidate) for candidate in candidates]
    reads = yield [plan_call("read", file_path=p, limit=1) for p in candidates]
    free = [
        candidate
        for candidate, listed, read in zip(candidates, listings, reads, strict=True)
        if read.is_error and not listed.is_error and not parse_listing(listed).rows
    ]
    if not free:
        raise CannotAnswer(f"{', '.join(candidates)} exist already.")
    sources = "\n\n\n".join(function.source.strip() for function in functions)
    content = f'"""Small functions on text."""\n\n\n{sources}\n'
    output = (yield [plan_call("write", file_path=free[0], content=content)])[0]
    if output.is_error:
        raise CannotAnswer(output.text)
    return free[0]


def _check_module(path: str, functions: Sequence[DemoFunction], context: Context) -> Plan:
    """Read the module and run its functions; the answer compares expected and actual values."""
    say = context.say
    context.require("read")
    file = (yield from read_files([path]))[path]
    if file.problem:
        text = "The child reported `{path}`, but it cannot be read: {error}"
        raise CannotAnswer(say(text, path=path, error=file.problem))
    not_run = say("Created `{path}`; it was read, but not run: ", path=path)
    if "bash" not in context.tools:
        return not_run + say("no `bash` tool here.")
    cases = [(function.name, *case) for function in functions for case in function.cases]
    sent = json.dumps([[name, arguments] for name, arguments, _ in cases])
    script = load_data("demo")["run_cases"].format(path=path, cases=sent)
    command = f"python3 -c {shlex.quote(script)}"
    title = say("Run the new functions")
    output = (yield [plan_call("bash", command=command, description=title)])[0]
    if _PYTHON_MISSING.search(output.text):
        return not_run + say("python3 is not installed.")
    actual = [line for line in output.text.split("\n") if re.match(r"[=!] ", line)]
    actual += ["! no output"] * (len(cases) - len(actual))
    rows: list[tuple[str, ...]] = []
    for (name, arguments, expected), line in zip(cases, actual, strict=False):
        inputs = ", ".join(map(json.dumps, arguments))
        wanted = json.dumps(expected)
        status = "✅" if line == f"= {wanted}" else "❌"
        rows.append((name, f"`{inputs}`", f"`{wanted}`", f"`{line[2:]}`", status))
    lead = say("✅ `{path}` was created and verified from here.", path=path)
    if any(row[-1] == "❌" for row in rows):
        lead = say("❌ `{path}` was created, but does not do all it should.", path=path)
    head = tuple(say(name) for name in ("Function", "Test input", "Expected", "Actual", "Status"))
    return combine([lead, format_table(head, rows)])
