"""Request "create": write one small Python module with known functions, then read and run it."""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

from msgspec import Struct

from .catalog import words
from .children import ChildPrompt, list_problems, run_children
from .plans import (
    CannotAnswer,
    Context,
    Plan,
    Request,
    Steps,
    combine,
    plan_call,
)
from .tool_output import format_table, parse_paths, read_files


class DemoFunction(Struct, frozen=True):
    """A function the model can write: its source, and arguments with the expected value."""

    source: str
    cases: tuple[tuple[tuple[Any, ...], Any], ...]


_FUNCTIONS = {
    "capitalize": DemoFunction(
        'def capitalize(text):\n    """Return the text with its first letter in upper case."""\n'
        "    return text[:1].upper() + text[1:]",
        ((("hello",), "Hello"), (("",), "")),
    ),
    "reverse_string": DemoFunction(
        'def reverse_string(text):\n    """Return the text backwards."""\n    return text[::-1]',
        ((("hello",), "olleh"), (("ab",), "ba")),
    ),
    "is_palindrome": DemoFunction(
        "def is_palindrome(text):\n"
        '    """Return True when the letters read the same backwards."""\n'
        "    letters = [c.lower() for c in text if c.isalnum()]\n"
        "    return letters == letters[::-1]",
        ((("racecar",), True), (("hello",), False)),
    ),
    "truncate": DemoFunction(
        'def truncate(text, length):\n    """Return the first characters, with "..." if cut."""\n'
        '    return text if len(text) <= length else text[:length] + "..."',
        ((("Hello, World!", 5), "Hello..."), (("Hi", 5), "Hi")),
    ),
    "slugify": DemoFunction(
        'def slugify(text):\n    """Return the text in lower case with words joined by dashes."""\n'
        '    words = "".join(c.lower() if c.isalnum() else " " for c in text).split()\n'
        '    return "-".join(words)',
        ((("Hello, World!",), "hello-world"), (("  a  b ",), "a-b")),
    ),
    "word_count": DemoFunction(
        'def word_count(text):\n    """Return the number of words."""\n'
        "    return len(text.split())",
        ((("one two three",), 3), (("",), 0)),
    ),
}
_DEFAULT_FUNCTIONS = ("capitalize", "reverse_string", "is_palindrome", "truncate")
_NEGATION = re.compile(r"(?i)\b(?:don'?t|do not|never|without|instead of)\b|不要|别|无需")
_OTHER_LANGUAGE = re.compile(
    r"(?i)\b(?:javascript|typescript|node(?:\.?js)?|golang|rust|java|ruby|php|c\+\+|c#|swift)\b"
    r"|\.(?:m?js|ts|go|rs|rb|java|php|c|cpp)\b"
)
_IDENTIFIER = r"[A-Za-z_]\w*"
_LIST = rf"`?{_IDENTIFIER}`?(?:\(\))?(?:\s*(?:,|、|和|与|\band\b)+\s*`?{_IDENTIFIER}`?(?:\(\))?)*"
_INTRODUCED = re.compile(
    r"(?i)(?:\bfunctions?\b(?: (?:called|named|like|such as))?|\bwith\b(?: the| a| an)?"
    r"(?: functions?\b)?|\bcontain\w*|\bincluding\b|包含|含有|包括|实现|函数)[:: ]*"
    rf"({_LIST})"
)
_FILLER = frozenset(words("filler_words"))
_PATH = re.compile(r"(?<![\w*/])((?:[\w.-]+/)*[\w-]+\.py)\b")
_NAMED_MODULE = re.compile(
    r"(?i)\bmodule (?:called|named) `?([a-z]\w*)`?|模块[名叫为]+\s*`?([a-z]\w*)`?"
)
_RUN_CASES = """\
import importlib.util, json, sys
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("checked", {path!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name, arguments in json.loads({cases!r}):
    try:
        print("=", json.dumps(getattr(module, name)(*arguments)))
    except Exception as error:
        print("!", type(error).__name__, error)
"""


def create_module(request: Request, context: Context) -> Plan:
    """Write the module, by a child where `task` is offered, then check it in this run."""
    say = context.say
    _refuse_unclear(request, context)
    names = _find_function_names(request.text)
    unknown = [name for name in names if name not in _FUNCTIONS]
    if unknown:
        known = ", ".join(_FUNCTIONS)
        raise CannotAnswer(
            say(
                "No module was written: the offline model cannot write {unknown}. "
                "It can write: {known}.",
                unknown=say.join(unknown),
                known=known,
            )
        )
    names = names or list(_DEFAULT_FUNCTIONS)
    if "task" not in context.tools:
        context.require("write", "glob", "read")
        path = yield from _write_module(request, names)
        listed = say.join([f"`{name}`" for name in names])
        return say("Created `{path}` with {listed}.", path=path, listed=listed)
    asked = _find_path(request.text)
    place = say(" at `{asked}`", asked=asked) if asked else ""
    functions = ", ".join(names)
    prompt = say(
        "Create a new Python module{place} with the functions {functions}. "
        "Overwrite no existing file. Report its path.",
        place=place,
        functions=functions,
    )
    work = ChildPrompt(prompt, say("Create a new module"))
    report = (yield from run_children([work], context, writes=True))[0]
    created = re.search(r"`([^`\s]+\.py)`", report.text)
    if not created:
        raise CannotAnswer(combine([report.text, report.problem]))
    checked = yield from _check_module(created[1], names, context)
    return combine([checked, *list_problems([report])])


def _refuse_unclear(request: Request, context: Context) -> None:
    """Raise CannotAnswer for a question, a negation, or another language: nothing is written."""
    say = context.say
    bare = re.sub(r"不要覆盖|Overwrite no", " ", request.text)
    if re.search(r"[??]", bare) or _NEGATION.search(bare):
        raise CannotAnswer(
            say(
                "No module was written: the request is not a plain instruction to write one. "
                'Say for example "create a new module, then verify it from here".'
            )
        )
    if _OTHER_LANGUAGE.search(bare):
        raise CannotAnswer(say("No module was written: the offline model writes Python only."))


def _find_function_names(text: str) -> list[str]:
    """Return the functions that a request names; empty when it leaves the choice open."""
    bare = _PATH.sub(" ", text)
    names = re.findall(rf"(?<![\w/.])({_IDENTIFIER})\s*\(", bare)
    names += re.findall(rf"`({_IDENTIFIER})(?:\(\))?`", bare)
    for match in _INTRODUCED.finditer(bare):
        names += re.findall(_IDENTIFIER, match[1])
    named = {m[1] or m[2] for m in _NAMED_MODULE.finditer(text)}
    return [n for n in dict.fromkeys(names) if n.lower() not in _FILLER and n not in named]


def _find_path(text: str) -> str:
    """Return the path that a request gives the module, "" for none."""
    match = _PATH.search(text)
    if match:
        return match[1]
    named = _NAMED_MODULE.search(text)
    return f"{named[1] or named[2]}.py" if named else ""


def _write_module(request: Request, names: list[str]) -> Steps[str]:
    """Write the module to a path that does not exist yet and return the path."""
    path = yield from _find_free_path(_find_path(request.text) or "string_utils.py")
    functions = "\n\n\n".join(_FUNCTIONS[name].source for name in names)
    source = f'"""Small functions on text."""\n\n\n{functions}\n'
    output = (yield [plan_call("write", file_path=path, content=source)])[0]
    if output.is_error:
        raise CannotAnswer(output.text)
    return path


def _find_free_path(path: str) -> Steps[str]:
    """Return the path, or the same with a number, that no file has."""
    stem = path.removesuffix(".py")
    candidates = [path, *(f"{stem}_{number}.py" for number in range(2, 10))]
    outputs = yield [plan_call("glob", pattern=candidate) for candidate in candidates]
    reads = yield [plan_call("read", file_path=p, limit=1) for p in candidates]
    for candidate, listed, read in zip(candidates, outputs, reads, strict=True):
        if not parse_paths(listed) and read.is_error:
            return candidate
    raise CannotAnswer(f"{path} and {stem}_2.py to {stem}_9.py exist already")


def _check_module(path: str, names: list[str], context: Context) -> Plan:
    """Read the module and run its functions; the answer compares expected and actual values."""
    say = context.say
    context.require("read")
    file = (yield from read_files([path]))[path]
    if file.error:
        raise CannotAnswer(
            say(
                "The child reported `{path}`, but it cannot be read: {error}",
                path=path,
                error=file.error,
            )
        )
    defined = {
        node.name for node in ast.walk(ast.parse(file.text)) if isinstance(node, ast.FunctionDef)
    }
    missing = [name for name in names if name not in defined]
    cases = [(name, *case) for name in names for case in _FUNCTIONS[name].cases]
    not_run = say("Created `{path}`; it was read, but not run: ", path=path)
    if "bash" not in context.tools:
        return not_run + say("no `bash` tool here.")
    sent = json.dumps([[name, arguments] for name, arguments, _ in cases])
    command = f"python3 -c {shlex.quote(_RUN_CASES.format(path=path, cases=sent))}"
    title = say("Run the new functions")
    output = (yield [plan_call("bash", command=command, description=title)])[0]
    if re.search(r"(?i)python3: (?:command )?not found|exit code 127", output.text):
        return not_run + say("python3 is not installed.")
    actual = [line for line in output.text.split("\n") if re.match(r"[=!] ", line)]
    actual += ["! no output"] * (len(cases) - len(actual))
    rows = [_compare(case, line) for case, line in zip(cases, actual, strict=False)]
    is_good = not missing and all(row[-1] == "✅" for row in rows)
    if is_good:
        lead = say("✅ `{path}` was created and verified from here.", path=path)
    else:
        lead = say("❌ `{path}` was created, but does not do all it should.", path=path)
    head = tuple(say(name) for name in ("Function", "Test input", "Expected", "Actual", "Status"))
    return combine([lead, format_table(head, rows)])


def _compare(case: tuple[str, tuple[Any, ...], Any], line: str) -> tuple[str, ...]:
    name, arguments, expected = case
    inputs = ", ".join(json.dumps(argument) for argument in arguments)
    is_same = line == f"= {json.dumps(expected)}"
    status = "✅" if is_same else "❌"
    return name, f"`{inputs}`", f"`{json.dumps(expected)}`", f"`{line[2:]}`", status
