"""Plans that write: modules in the project's language, quoted texts, and answers in files."""

from __future__ import annotations

import json
import re
from typing import Any

from .catalog import load_data
from .files import format_table, list_files, parse_listing, read_files, run_children
from .plans import CannotAnswer, Context, Plan, Request, Steps, combine, plan_call
from .requests import match_writing_form, parse_prompt
from .technologies import count_languages

_DEFAULT_FUNCTIONS = 4
Row = dict[str, Any]  # of `demo.toml`


def create_module(request: Request, context: Context) -> Plan:
    """Write the module, through a child if `task` is offered, then check it in this run."""
    say = context.say
    asked = match_writing_form(request.text)[1]
    path, name = asked.get("path", ""), asked.get("language", "")
    known: list[Row] = load_data("demo")["function"]
    names = re.findall(r"(?a)(?<![\w/])\w+(?![\w/]|\.\w)", request.text)
    functions = [row for row in known if row["name"] in names] or known[:_DEFAULT_FUNCTIONS]
    if "task" not in context.tools:
        return (yield from _write_module(request, functions, context))
    what = " ".join(filter(None, [name, say("module"), path]))
    prompt = say("create_prompt", what=what, names=", ".join(row["name"] for row in functions))
    text, why = (yield from run_children([(prompt, say("create_title"))], context, writes=True))[0]
    created = re.search(say("created", path="(.+?)", names=".*"), text)
    if why or not created:
        raise CannotAnswer(why or text)
    return (yield from _check_module(created[1], functions, context))


def _write_module(request: Request, functions: list[Row], context: Context) -> Plan:
    """Write the module in the requested language, else in that of most source files."""
    context.require("write", "glob", "read")
    asked = match_writing_form(request.text)[1]
    path, name = asked.get("path", ""), asked.get("language", "")
    if not path and not name:
        data = load_data("languages")
        left_out = data["foreign_folders"] + data["test_folders"]
        counts = yield from count_languages(request, left_out, [])
        name = max(counts, key=lambda name: counts[name]) if any(counts.values()) else "Python"
    language = _find_language(path, name)
    if not language:
        raise CannotAnswer(context.say("no_module_language", language=name))
    if not path:
        pattern = f"{language['folder']}/**/*.{language['suffixes'][0]}"
        is_used = parse_listing((yield [plan_call("glob", pattern=pattern)])[0]).rows
        path = f"{language['folder']}/{language['file']}" if is_used else language["file"]
    sources = [_read_source(row, language) for row in functions]
    parts = [language["head"], *sources, language["foot"]]
    content = language["gap"].join(part.strip("\n") for part in parts if part)
    yield from _write_new(path, content, context, language["taken"])
    return context.say("created", path=path, names=", ".join(row["name"] for row in functions))


def _check_module(path: str, functions: list[Row], context: Context) -> Plan:
    """Read a module that a child wrote, run its functions, and compare their values."""
    say = context.say
    context.require("read")
    file = (yield from read_files([path]))[path]
    language = _find_language(path, "")
    if file.problem or not language:
        raise CannotAnswer(say("created_unreadable", path=path, error=file.problem))
    if "bash" not in context.tools:
        raise CannotAnswer(say("not_run", path=path, reason=say("no_bash")))
    cases = [(row, *map(json.dumps, case)) for row in functions for case in row["cases"]]
    calls: list[str] = []
    for row, inputs, _ in cases:
        name = re.findall(r"\w+(?=\()", _read_source(row, language))[0]
        calls.append(language["call"].replace("NAME", name).replace("ARGUMENTS", inputs[1:-1]))
    command = language["command"].replace('"PATH"', f'"{path}"').replace("CALLS", "\n".join(calls))
    output = (yield [plan_call("bash", command=command, description=say("run_title"))])[0]
    values = re.findall(r"(?m)^case (.*)$", output.text)
    if len(values) < len(cases):
        reason = re.sub(r"(?m)^case .*\n", "", output.text).strip().split("\n")[0][:300]
        raise CannotAnswer(say("not_run", path=path, reason=reason))
    rows = [
        (row["name"], f"`{inputs[1:-1]}`", f"`{wanted}`", f"`{value}`", "✅❌"[value != wanted])
        for (row, inputs, wanted), value in zip(cases, values, strict=True)
    ]
    lead = say("wrong" if any(row[-1] == "❌" for row in rows) else "verified", path=path)
    head = map(say, ("function_head", "test_input", "expected", "actual", "status"))
    return combine([lead, format_table(head, rows)])


def change_file(request: Request, context: Context) -> Plan:
    """Write a new file, or add a line or replace text in one, as quoted in the prompt."""
    asked = match_writing_form(request.text)[1]
    path = asked["file"]
    if request.kind == "write":
        yield from _write_new(path, asked["text"][1:-1], context)
    elif request.kind == "append":
        path = yield from _append(path, asked["text"][1:-1], context)
    else:
        old, new = (asked[name][1:-1] for name in ("old", "new"))
        texts = {"old_string": old, "new_string": new, "replace_all": True}
        yield from _call("edit", context, file_path=path, **texts)
    return context.say(f"{request.kind}_done", path=path)


def save_answer(request: Request, context: Context) -> Plan:
    """Add the answer so far, or its tables, to a file under a heading, and read it back."""
    say = context.say
    if context.problems or not context.parts:
        raise CannotAnswer(say("not_saved"))
    asked = match_writing_form(request.text)[1]
    heading = say(f"title_{parse_prompt(asked['rest'])[0][0].kind}")
    answer = combine(context.parts)
    tables = "\n".join(line for line in answer.split("\n") if line.startswith("|"))
    text = f"## {heading}\n\n{tables or answer}"
    path = yield from _append(asked["file"], f"\n{text}", context)
    file = (yield from read_files([path]))[path]
    if not file.text.rstrip().endswith(text):
        raise CannotAnswer(file.problem or say("written_otherwise", path=path))
    return say("saved", path=path, heading=heading)


def _find_language(path: str, name: str) -> Row | None:
    suffix, name = path.rpartition(".")[2], name.lower()
    rows = [x for x in load_data("demo")["language"] if name in ("", x["name"].lower())]
    return next((x for x in rows if not path or suffix in x["suffixes"]), None)


def _read_source(function: Row, language: Row) -> str:
    return re.sub(language["omit"], "", function["sources"][language["source"]])


def _call(tool: str, context: Context, **arguments: object) -> Steps[None]:
    context.require(tool)
    output = (yield [plan_call(tool, **arguments)])[0]
    if output.error:
        raise CannotAnswer(output.text)


def _write_new(path: str, text: str, context: Context, taken: str = "") -> Steps[None]:
    """Write a file unless it already exists, even if git ignores it."""
    calls = [plan_call("glob", pattern=taken or path), plan_call("read", file_path=path)]
    listed, read = yield calls
    if listed.error or parse_listing(listed).rows or not read.error:
        raise CannotAnswer(context.say("exists", path=path))
    yield from _call("write", context, file_path=path, content=f"{text.strip()}\n")


def _append(path: str, text: str, context: Context) -> Steps[str]:
    """Add text to the end of a file, which may be new, and return its path."""
    pattern = "[Rr][Ee][Aa][Dd][Mm][Ee]*" if path.lower() == "readme" else path
    rows = (yield from list_files(Request("list", path), [pattern])).rows
    path = rows[0] if rows else path
    if not rows:
        yield from _write_new(path, text, context)
        return path
    file = (yield from read_files([path]))[path]
    heading = text.lstrip("\n").partition("\n")[0]
    lines = file.text.rstrip("\n").split("\n")
    if file.problem or not file.text.strip() or (heading[:1] == "#" and heading in lines):
        raise CannotAnswer(file.problem or context.say("has_section", path=path, heading=heading))
    # An edit replaces text that occurs once: as many of the last lines as that takes.
    ends = ("\n".join(lines[-most:]) for most in range(1, len(lines) + 1))
    end = next(end for end in ends if end.strip() and file.text.count(end) == 1)
    yield from _call("edit", context, file_path=path, old_string=end, new_string=f"{end}\n{text}")
    return path
