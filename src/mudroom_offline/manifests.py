"""Manifests: what a project declares that it needs. Read by the rules of `data/manifests.toml`."""

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
PURPOSES = ("runtime", "development", "other")


class Dependency(Struct, frozen=True):
    """A package that a manifest names."""

    name: str
    version: str  # constraint, "" for none
    purpose: str  # one of PURPOSES; "other" when it is not known


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
        if rules.format == "lines":
            data = re.sub(r"\\\n", " ", text).split("\n")
        else:
            data = tomllib.loads(text) if rules.format == "toml" else json.loads(text)
        _read_data(data, manifest)
    except (ValueError, RecursionError) as error:
        manifest.dependencies.clear()
        manifest.problem = f"`{path}`: {error}"
    return manifest


def _read_data(data: object, manifest: Manifest) -> None:
    rules = manifest.rules
    for purpose in PURPOSES:
        for path in getattr(rules, purpose):
            for value in _read_values_at(data, path):
                manifest.dependencies += _read_dependencies(value, purpose)
    for path in rules.tools:
        for value in _read_values_at(data, path):
            if isinstance(value, dict):
                manifest.tools += "".join(f"[{name}] " for name in cast("dict[str, object]", value))
            else:
                manifest.tools += f"{path.rpartition('/')[2]}={value} "


def _read_values_at(data: object, path: str) -> Iterator[object]:
    """Yield the values at a path of keys with slashes between them; "*" stands for any letters."""
    key, _, rest = path.partition("/")
    if not path:
        yield data
    elif isinstance(data, dict):
        for name, value in cast("dict[str, object]", data).items():
            if fnmatchcase(name, key):
                yield from _read_values_at(value, rest)


def _read_dependencies(value: object, purpose: str) -> Iterator[Dependency]:
    if isinstance(value, list):
        for line in cast("list[object]", value):
            match = _REQUIREMENT.match(line) if isinstance(line, str) else None
            if match and not _IS_URL.match(match.string):
                version = re.sub(r"\s+", "", match[2]).rstrip(",")
                yield Dependency(match[1].lower(), version, purpose)
    elif isinstance(value, dict):
        for name, constraint in cast("dict[str, object]", value).items():
            if isinstance(constraint, dict):
                constraint = cast("dict[str, object]", constraint).get("version", "")
            version = constraint if isinstance(constraint, str) and constraint != "*" else ""
            if name != "python":
                yield Dependency(name, version, purpose)


def _read_text(text: str, manifest: Manifest) -> None:
    rules = manifest.rules
    manifest.tools = re.sub(rules.comment, "", text) if rules.comment else text
    for match in re.finditer(rules.dependency, manifest.tools) if rules.dependency else ():
        is_dev = any(re.search(pattern, match[0]) for pattern in rules.development)
        purpose = "development" if is_dev else "other"
        version = (match["v"] or "").strip()
        if "version.ref" in match[0]:
            values = re.findall(rf"(?m)^{re.escape(version)} *= *[\"']([^\"']+)", manifest.tools)
            version = next(iter(values), "")
        manifest.dependencies.append(Dependency(match["n"].strip(), version, purpose))
