"""All regular expressions of the source, and how each is used."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).parents[2] / "src"
_METHODS = ("finditer", "search", "match", "fullmatch")
"""From the harshest: the first is tried at each place of a text, the last at one and to its end."""
_SAME: dict[str, str] = dict.fromkeys(("sub", "subn", "split", "findall", "pattern"), "finditer")


class Pattern(NamedTuple):
    """One regular expression.

    Arguments:
        place: file and line.
        method: the harshest method of `re.Pattern` that is called on it.
        source: None if the pattern is built of local variables.
        expression: the code that makes the source.
    """

    place: str
    method: str
    source: str | bytes | None
    flags: int
    expression: str


@cache
def read_source() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def list_patterns(folder: Path) -> Iterator[Pattern]:
    """Yield the patterns of all modules in a folder or of one module."""
    for path, text in read_source().items():
        if path.is_relative_to(folder) and re.search(r"\bre\.|compile_later", text):
            yield from _list_patterns_of(path)


@cache
def _list_patterns_of(path: Path) -> tuple[Pattern, ...]:
    """Return the patterns of a module, whose text is read and parsed once for all tests."""
    return tuple(_find_patterns(path, ast.parse(read_source()[path])))


def _find_patterns(path: Path, tree: ast.Module) -> Iterator[Pattern]:
    names = {
        id(node.value): target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    module = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args or not (kind := _name_call(node.func)):
            continue
        first = node.args[0]
        expression = ast.unparse(first)
        module = module or importlib.import_module(_name_module(path))
        place = f"{path.relative_to(SOURCE)}:{node.lineno}"
        method = kind
        if kind == "compile":
            method = _find_method(path, names.get(id(node)))
        source, flags = _evaluate(first, module), 0
        if source is not None and not isinstance(source, (str, bytes)):
            continue  # a compiled pattern, which has its own place
        for argument in (*node.args[1:], *(word.value for word in node.keywords)):
            value = _evaluate(argument, module)
            flags |= value if isinstance(value, re.RegexFlag) else 0
        yield Pattern(place, method, source, int(flags), expression)


def _name_call(function: ast.expr) -> str | None:
    """Return the method of `re` that is called, None for other calls."""
    if isinstance(function, ast.Name) and function.id == "compile_later":
        return "compile"
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return None
    if function.value.id != "re":
        return None
    name = _SAME.get(function.attr, function.attr)
    return name if name in (*_METHODS, "compile") else None


def _find_method(path: Path, name: str | None) -> str:
    """Return the harshest method that modules with this name call on a constant."""
    if name is None:
        return _METHODS[0]
    used: set[str] = set()
    for other, text in read_source().items():
        if name not in text:
            continue
        if other != path and not re.search(rf"import [^\n]*\b{name}\b|^    {name},$", text, re.M):
            continue
        if re.search(rf"\b{name}\b(?!\.| = |\w|,$)", text.replace(f"import {name}", "")):
            return _METHODS[0]  # passed on as a value
        for method, arguments in re.findall(rf"\b{name}\.(\w+)(\([^()]*)?", text):
            # With a position the pattern is tried at many places of one text.
            used.add("finditer" if "," in str(arguments) else _SAME.get(method, str(method)))
    return next((method for method in _METHODS if method in used), _METHODS[0])


def _evaluate(node: ast.expr, module: object) -> Any:
    try:
        return eval(compile(ast.Expression(node), "pattern", "eval"), vars(module))
    except (NameError, AttributeError, TypeError, KeyError):
        return None


def _name_module(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
