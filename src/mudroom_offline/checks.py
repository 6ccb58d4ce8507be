"""Verifying a new module: read it, run every function through `bash`, and compare what comes out with what should."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from .plan import Means, Plan, call
from .reading import read_all, table
from .recipes import Recipe, camel

_PYTHON = """\
import importlib.util, json, sys
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("checked", PATH)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name, arguments in json.loads(CASES):
    try:
        print("=", json.dumps(getattr(module, name)(*arguments)))
    except Exception as error:
        print("!", type(error).__name__, error)
"""
_NODE = """\
const { pathToFileURL } = require("node:url");
import(pathToFileURL(PATH).href).then((loaded) => {
  const found = { ...(loaded.default || {}), ...loaded };
  for (const [name, args] of JSON.parse(CASES)) {
    try { console.log("=", JSON.stringify(found[name](...args))); }
    catch (error) { console.log("!", error.name, error.message); }
  }
});
"""


def verify(path: str, recipes: list[Recipe], means: Means) -> Plan:
    """Read the module and run it; the answer is a table of expected and actual values."""
    say = means.say
    if lacking := means.without("read"):
        return lacking
    file = (yield from read_all([path]))[path]
    if file.error:
        return say(
            f"`{path}` was said to be written, but cannot be read: {file.error}",
            f"据称已写入 `{path}`,但无法读取:{file.error}",
        )
    name = _same if path.endswith(".py") else camel
    lacks = [
        name(r.name)
        for r in recipes
        if not re.search(rf"\b(?:def|function)\s+{name(r.name)}\b", file.text)
    ]
    missing = say(f"It lacks {say.join(lacks)}.", f"缺少 {say.join(lacks)}。") if lacks else ""
    cases = [
        (name(r.name), list(arguments), expected)
        for r in recipes
        for arguments, expected in r.cases
    ]
    if "bash" not in means.tools:
        return (
            say(
                f"Created `{path}`; it was read, but not run: no `bash` here. ",
                f"已创建 `{path}`;只读取、未运行:这里没有 `bash`。",
            )
            + missing
        )
    outcome = (
        yield [
            call(
                "bash",
                command=_command(path, cases),
                description=say("Run the new functions", "运行新函数"),
            )
        ]
    )[0]
    if re.search(r"(?i)(?:node|python3?): (?:command )?not found|exit code 127", outcome.text):
        program = "python3" if path.endswith(".py") else "node"
        return (
            say(
                f"Created `{path}`; it was read, but not run: {program} is not installed. ",
                f"已创建 `{path}`;只读取、未运行:没有安装 {program}。",
            )
            + missing
        )
    actual = [line for line in outcome.text.split("\n") if re.match(r"[=!] ", line)]
    actual += ["! no output"] * (len(cases) - len(actual))
    rows = [_row(case, line, path) for case, line in zip(cases, actual, strict=False)]
    good = all(row[-1] == "✅" for row in rows) and not lacks
    lead = (
        say(
            f"✅ `{path}` was created and verified from here.",
            f"✅ 已创建 `{path}`,并在这里验证通过。",
        )
        if good
        else say(
            f"❌ `{path}` was created, but does not do all it should.",
            f"❌ 已创建 `{path}`,但没有完全通过验证。",
        )
    )
    head = (
        say("Function", "函数"),
        say("Test input", "测试输入"),
        say("Expected", "预期"),
        say("Actual", "实际"),
        say("Status", "状态"),
    )
    error = "" if any(line.startswith("=") for line in actual) else "\n\n" + outcome.text[:500]
    return f"{lead} {missing}\n\n{table(head, rows)}{error}"


def _same(name: str) -> str:
    return name


def _command(path: str, cases: list[tuple[str, list[Any], Any]]) -> str:
    sent = json.dumps(json.dumps([[name, arguments] for name, arguments, _ in cases]))
    python = path.endswith(".py")
    place = f"{path!r}" if python else f"require('node:path').resolve({json.dumps(path)})"
    script = (_PYTHON if python else _NODE).replace("PATH", place).replace("CASES", sent)
    return f"{'python3 -c' if python else 'node -e'} {shlex.quote(script)}"


def _row(case: tuple[str, list[Any], Any], line: str, path: str) -> tuple[str, ...]:
    name, arguments, expected = case
    given = ", ".join(json.dumps(a) for a in arguments)
    value = line[2:]
    try:
        same = line.startswith("=") and json.loads(value) == expected
    except ValueError:
        same = False
    return name, f"`{given}`", f"`{json.dumps(expected)}`", f"`{value}`", "✅" if same else "❌"
