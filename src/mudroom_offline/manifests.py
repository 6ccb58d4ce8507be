"""Manifests: packages and tools that they list. Read by the rules of `data/manifests.toml`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct, field

from .catalog import ManifestFormat, load_rows, matches_any

_NAME = re.compile(r"\s*([A-Za-z@][\w./@-]*)(?![\w.-]*[:+])")


class Dependency(Struct, frozen=True):
    """An entry of a manifest as it is written there."""

    name: str
    text: str  # a requirement, a name with its value, or a line
    section: str  # name of a section, or number of a line


class Manifest(Struct):
    """What one manifest declares."""

    path: str
    rules: ManifestFormat
    dependencies: list[Dependency] = field(default_factory=list[Dependency])
    sections: list[str] = field(default_factory=list[str])  # the sections that were read
    tools: str = ""  # names of configured tools, and test commands


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
    with suppress(ValueError, RecursionError):
        _read_data(tomllib.loads(text) if rules.format == "toml" else json.loads(text), manifest)
    return manifest


def _read_data(data: object, manifest: Manifest) -> None:
    for path in manifest.rules.sections:
        for section, value in _read_values_at(data, path):
            manifest.sections.append(section)
            manifest.dependencies += _read_dependencies(value, section)
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


def _read_dependencies(value: object, section: str) -> Iterator[Dependency]:
    if isinstance(value, list):
        for entry in cast("list[object]", value):
            text = entry if isinstance(entry, str) else json.dumps(entry, default=str)
            match = _NAME.match(text)
            yield Dependency(match[1] if match else "", text, section)
    elif isinstance(value, dict):
        for name, entry in cast("dict[str, object]", value).items():
            text = entry if isinstance(entry, str) else json.dumps(entry, default=str)
            yield Dependency(name, f"{name}: {text}", section)


def _read_text(text: str, manifest: Manifest) -> None:
    rules = manifest.rules
    manifest.tools = re.sub(rules.comment, lambda match: "\n" * match[0].count("\n"), text)
    lines = text.split("\n")
    for match in re.finditer(rules.dependency, manifest.tools):
        number = manifest.tools.count("\n", 0, match.start("n")) + 1
        manifest.dependencies.append(Dependency(match["n"].strip(), lines[number - 1], f"{number}"))
