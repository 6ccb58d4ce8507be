"""Manifests: what a project declares that it needs. Read by the rules of `data/manifests.toml`."""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct, field

from .catalog import ManifestFormat, manifest_formats

_REQUIREMENT = re.compile(
    r"^\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?\s*((?:[<>=!~^]=?=?\s*[\w.*+!-]+\s*,?\s*)*)"
)
_TEST_SCRIPT = re.compile(r"(?:pre|post)?(?:test|unit|e2e|ci|bench|coverage)")


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


def is_pinned_list(path: str) -> bool:
    """Return True for a list of pinned requirements, which may be very long."""
    return path.endswith(".txt")


def parse_manifest(path: str, text: str) -> Manifest:
    """Read a manifest. A broken one declares nothing."""
    manifest = Manifest(path)
    rules = _find_format(path)
    if rules is None:
        return manifest
    try:
        _READERS[rules.format](text, rules, manifest)
    except (ValueError, TypeError, AttributeError, KeyError, SyntaxError, configparser.Error):
        manifest.dependencies.clear()
    return manifest


def _find_format(path: str) -> ManifestFormat | None:
    for rules in manifest_formats():
        if re.search(rf"(?:^|/)(?:{rules.name})$", path):
            return rules
    return None


def _read_toml(text: str, rules: ManifestFormat, manifest: Manifest) -> None:
    data = tomllib.loads(text)
    _read_keys(data, rules, manifest)
    tools = [f"[tool.{name}]" for name in data.get("tool", {})]
    backend = str(data.get("build-system", {}).get("build-backend", ""))
    manifest.tools = " ".join([*tools, backend])


def _read_json(text: str, rules: ManifestFormat, manifest: Manifest) -> None:
    data = cast("dict[str, Any]", json.loads(text))
    _read_keys(data, rules, manifest)
    scripts = cast("dict[str, Any]", data.get("scripts") or {})
    commands = [str(command) for name, command in scripts.items() if _TEST_SCRIPT.match(name)]
    manifest.tools = " ".join([*commands, *(f"[{name}]" for name in data)])


def _read_keys(data: dict[str, Any], rules: ManifestFormat, manifest: Manifest) -> None:
    for path in rules.project:
        names = [value for value in _values_at(data, path) if isinstance(value, str)]
        manifest.project = manifest.project or next(iter(names), "")
    for paths, is_dev in ((rules.runtime, False), (rules.development, True)):
        for path in paths:
            for value in _values_at(data, path):
                manifest.dependencies += _dependencies_in(value, is_dev)


def _values_at(data: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path of keys; "*" stands for every key."""
    if not path:
        yield data
        return
    key, _, rest = path.partition(".")
    if isinstance(data, dict):
        table = cast("dict[str, Any]", data)
        for name in table if key == "*" else (key,):
            if name in table:
                yield from _values_at(table[name], rest)


def _dependencies_in(value: Any, is_dev: bool) -> Iterator[Dependency]:
    if isinstance(value, list):
        for line in cast("list[Any]", value):
            if isinstance(line, str):
                yield from _parse_requirement(line, is_dev)
    elif isinstance(value, dict):
        for name, constraint in cast("dict[str, Any]", value).items():
            if isinstance(constraint, dict):
                constraint = cast("dict[str, Any]", constraint).get("version", "")
            version = constraint if isinstance(constraint, str) and constraint != "*" else ""
            if name != "python":
                yield Dependency(name, version, is_dev)


def _parse_requirement(line: str, is_dev: bool) -> Iterator[Dependency]:
    match = _REQUIREMENT.match(line.partition(";")[0].partition(" #")[0])
    if match:
        version = re.sub(r"\s+", "", match[2]).rstrip(",")
        yield Dependency(match[1].lower(), version, is_dev)


def _read_requirements(text: str, _: ManifestFormat, manifest: Manifest) -> None:
    is_dev = not re.search(r"(?:^|/)requirements\.txt$", manifest.path)
    for line in text.split("\n"):
        if re.match(r"\s*[A-Za-z]", line):
            manifest.dependencies += _parse_requirement(line, is_dev)


def _read_ini(text: str, _: ManifestFormat, manifest: Manifest) -> None:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(text)
    manifest.project = parser.get("metadata", "name", fallback="")
    for section in parser.sections():
        manifest.tools += f"[{section}] {parser.get(section, 'commands', fallback='')} "
        is_extra = section == "options.extras_require"
        for key, value in parser.items(section):
            if is_extra or key in ("deps", "install_requires", "tests_require"):
                for line in (value or "").split("\n"):
                    bare = re.sub(r"^[\w-]+:\s+", "", line.strip())
                    if bare[:1].isalpha():
                        manifest.dependencies += _parse_requirement(bare, key != "install_requires")


def _read_python(text: str, _: ManifestFormat, manifest: Manifest) -> None:
    """Read the literal arguments of `setup(...)`. The file is parsed, never run."""
    tree = ast.parse(text)
    if re.search(r"(?m)^(?:import|from) nox\b", text):
        manifest.tools = "[tool.nox]"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".install"):
            _add_literals(node, manifest, is_dev=True)
        if not (isinstance(node, ast.keyword) and node.arg):
            continue
        if node.arg == "name" and isinstance(node.value, ast.Constant):
            manifest.project = str(node.value.value)
        if node.arg in ("install_requires", "tests_require", "extras_require"):
            _add_literals(node.value, manifest, is_dev=node.arg != "install_requires")


def _add_literals(node: ast.AST, manifest: Manifest, *, is_dev: bool) -> None:
    """Add the requirements that are literal strings below a node; keys of dictionaries are not."""
    keys = [key for part in ast.walk(node) if isinstance(part, ast.Dict) for key in part.keys]
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and part not in keys:
            manifest.dependencies += _parse_requirement(str(part.value), is_dev)


def _read_text(text: str, rules: ManifestFormat, manifest: Manifest) -> None:
    bare = re.sub(rules.comment, "", text) if rules.comment else text
    is_dev = re.compile("|".join(rules.development)) if rules.development else None
    for match in re.finditer(rules.dependency, bare):
        groups = match.groupdict()
        if groups["n"]:
            version = (groups.get("v") or "").strip()
            dev = bool(is_dev and is_dev.search(match[0]))
            manifest.dependencies.append(Dependency(groups["n"], version, dev))
    for pattern in rules.project:
        named = re.search(pattern, bare)
        manifest.project = named[1] if named else ""
    manifest.tools = bare


_READERS = {
    "toml": _read_toml,
    "json": _read_json,
    "requirements": _read_requirements,
    "ini": _read_ini,
    "python": _read_python,
    "text": _read_text,
}
