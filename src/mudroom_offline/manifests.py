"""Manifests: packages and tools that they list. Read by the rules of `data/manifests.toml`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct, field

from .catalog import ManifestFormat, load_rows, matches_any

_REQUIREMENT = re.compile(
    r"^\s*([A-Za-z][\w.-]*)\s*(?:\[[^\]]*\])?\s*"
    r"\(?\s*((?:[<>=!~^]=?=?\s*[\w.*+!-]+\s*,?\s*)*)"
)
_IS_URL = re.compile(r"\s*[\w.-]+[:+/]")


class Dependency(Struct, frozen=True):
    """A package that a manifest lists."""

    name: str
    version: str  # as written, "" for none
    place: str  # path with a line or a section


class Manifest(Struct):
    """What one manifest declares."""

    path: str
    rules: ManifestFormat
    dependencies: list[Dependency] = field(default_factory=list[Dependency])
    tools: str = ""  # names of configured tools, and test commands
    problem: str = ""  # why its dependencies are not known


def find_format(path: str) -> ManifestFormat | None:
    """Return the rules for a manifest, None for another file."""
    rows = load_rows("manifests", "manifest", ManifestFormat)
    return next((rules for rules in rows if matches_any(path, rules.files)), None)


def parse_manifest(path: str, text: str) -> Manifest:
    """Read a manifest. A broken one declares nothing."""
    rules = find_format(path) or ManifestFormat((), "program")
    manifest = Manifest(path, rules)
    if rules.format in ("text", "program"):
        _read_text(text, manifest)
        return manifest
    try:
        data = tomllib.loads(text) if rules.format == "toml" else json.loads(text)
        _read_data(data, manifest)
    except (ValueError, RecursionError) as error:
        manifest.dependencies.clear()
        manifest.problem = f"`{path}`: {error}"
    return manifest


def _read_data(data: object, manifest: Manifest) -> None:
    for path in manifest.rules.sections:
        for section, value in _read_values_at(data, path):
            manifest.dependencies += _read_dependencies(value, manifest.path, section)
    for path in manifest.rules.tools:
        for section, value in _read_values_at(data, path):
            if isinstance(value, dict):
                manifest.tools += "".join(f"[{name}] " for name in cast("dict[str, object]", value))
            else:
                manifest.tools += f"{section.rpartition('/')[2]}={value} "


def _read_values_at(data: object, path: str, section: str = "") -> Iterator[tuple[str, object]]:
    """Yield keys and values at a path of keys with slashes between them; "*" is any letters."""
    key, _, rest = path.partition("/")
    if not path:
        yield section[1:], data
    elif isinstance(data, dict):
        for name, value in cast("dict[str, object]", data).items():
            if fnmatchcase(name, key):
                yield from _read_values_at(value, rest, f"{section}/{name}")


def _read_dependencies(value: object, path: str, section: str) -> Iterator[Dependency]:
    if isinstance(value, list):
        for line in cast("list[object]", value):
            match = _REQUIREMENT.match(line) if isinstance(line, str) else None
            if match and not _IS_URL.match(match.string):
                version = re.sub(r"\s+", "", match[2]).rstrip(",")
                yield Dependency(match[1], version, f"`{path}` `[{section}]`")
    elif isinstance(value, dict):
        for name, constraint in cast("dict[str, object]", value).items():
            if isinstance(constraint, dict):
                constraint = cast("dict[str, object]", constraint).get("version", "")
            version = constraint if isinstance(constraint, str) else ""
            yield Dependency(name, version, f"`{path}` `[{section}]`")


def _read_text(text: str, manifest: Manifest) -> None:
    rules = manifest.rules
    manifest.tools = re.sub(rules.comment, lambda match: "\n" * match[0].count("\n"), text)
    for match in re.finditer(rules.dependency, manifest.tools):
        place = f"`{manifest.path}:{manifest.tools.count(chr(10), 0, match.start('n')) + 1}`"
        version = (match["v"] or "").strip()
        manifest.dependencies.append(Dependency(match["n"].strip(), version, place))
