"""Request "create": write one small Python module with known functions, then read and run it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from .catalog import DemoFunction, load_data, load_rows
from .children import run_children
from .plans import CannotAnswer, Context, Plan, Request, combine, plan_call
from .tool_output import format_table, parse_listing, read_files

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
    """Write the module, unless there is such a file, also one that git ignores."""
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
