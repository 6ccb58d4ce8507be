"""Manifests: what a project declares that it needs. Read by the rules of `data/manifests.toml`."""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, cast

from msgspec import Struct, field

from .catalog import ManifestFormat, load_rows

_REQUIREMENT = re.compile(
    r"^\s*(?:[\w-]+:\s+)?([A-Za-z][\w.-]*)\s*(?:\[[^\]]*\])?\s*"
    r"\(?\s*((?:[<>=!~^]=?=?\s*[\w.*+!-]+\s*,?\s*)*)"
)


class Dependency(Struct, frozen=True):
    """A package and its version constraint, "" for none; `is_dev` when it is not needed to run."""

    name: str
    version: str = ""
    is_dev: bool = False


class Manifest(Struct):
    """What one manifest declares. `tools` has the names of configured tools and test commands."""

    path: str
    project: str = ""
    dependencies: list[Dependency] = field(default_factory=list[Dependency])
    tools: str = ""


def is_manifest(path: str) -> bool:
    """Return True when a file declares what a project needs."""
    return _find_format(path) is not None


def parse_manifest(path: str, text: str) -> Manifest:
    """Read a manifest. A broken one declares nothing."""
    manifest = Manifest(path)
    rules = _find_format(path)
    if rules is None:
        return manifest
    if rules.format == "text":
        _read_text(text, rules, manifest)
        return manifest
    try:
        _read_data(_LOADERS[rules.format](text), rules, manifest)
    except (ValueError, SyntaxError, RecursionError, configparser.Error):
        manifest.dependencies.clear()
    return manifest


def _find_format(path: str) -> ManifestFormat | None:
    for rules in load_rows("manifests", "manifest", ManifestFormat):
        if re.search(rf"(?:^|/)(?:{rules.name})$", path):
            return rules
    return None


def _load_ini(text: str) -> dict[str, Any]:
    """Return section -> key -> list of lines."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(text)
    return {
        section: {key: (value or "").split("\n") for key, value in parser.items(section)}
        for section in parser.sections()
    }


def _load_python(text: str) -> dict[str, Any]:
    """Return keyword -> literal of the call `setup(...)`. The file is parsed, never run."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setup"):
            return {k.arg: _read_literal(k.value) for k in node.keywords if k.arg}
    return {}


def _read_literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


_LOADERS = {
    "toml": tomllib.loads,
    "json": json.loads,
    "ini": _load_ini,
    "python": _load_python,
    "lines": str.splitlines,
}


def _read_data(data: object, rules: ManifestFormat, manifest: Manifest) -> None:
    names = [_first_text(value) for path in rules.project for value in _values_at(data, path)]
    manifest.project = next(filter(None, names), "")
    for paths, is_dev in ((rules.runtime, False), (rules.development, True)):
        for path in paths:
            for value in _values_at(data, path):
                manifest.dependencies += _dependencies_in(value, is_dev)
    for path in rules.tools:
        for value in _values_at(data, path):
            if isinstance(value, dict):
                manifest.tools += "".join(f"[{name}] " for name in cast("dict[str, object]", value))
            else:
                manifest.tools += f"{value} "


def _values_at(data: object, path: str) -> Iterator[object]:
    """Yield the values at a path of keys with slashes between them; "*" stands for any letters."""
    key, _, rest = path.partition("/")
    if not path:
        yield data
    elif isinstance(data, dict):
        for name, value in cast("dict[str, object]", data).items():
            if fnmatchcase(name, key):
                yield from _values_at(value, rest)


def _first_text(value: object) -> str:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return next((item for item in items if isinstance(item, str)), "")


def _dependencies_in(value: object, is_dev: bool) -> Iterator[Dependency]:
    if isinstance(value, list):
        for line in cast("list[object]", value):
            match = _REQUIREMENT.match(line) if isinstance(line, str) else None
            if match:
                version = re.sub(r"\s+", "", match[2]).rstrip(",")
                yield Dependency(match[1].lower(), version, is_dev)
    elif isinstance(value, dict):
        for name, constraint in cast("dict[str, object]", value).items():
            if isinstance(constraint, dict):
                constraint = cast("dict[str, object]", constraint).get("version", "")
            version = constraint if isinstance(constraint, str) and constraint != "*" else ""
            if name != "python":
                yield Dependency(name, version, is_dev)


def _read_text(text: str, rules: ManifestFormat, manifest: Manifest) -> None:
    bare = re.sub(rules.comment, "", text) if rules.comment else text
    for match in re.finditer(rules.dependency, bare):
        groups = match.groupdict()
        if groups["n"]:
            version = (groups.get("v") or "").strip()
            is_dev = any(re.search(pattern, match[0]) for pattern in rules.development)
            manifest.dependencies.append(Dependency(groups["n"], version, is_dev))
    for pattern in rules.project:
        named = re.search(pattern, bare)
        manifest.project = named[1] if named else ""
    manifest.tools = bare
