"""The tables in `data/`. The head of each TOML file explains its fields."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

NEVER = "(?!)"  # regular expression that matches nothing
Row = TypeVar("Row")


class Technology(Struct, frozen=True):
    """How to recognise one tool or framework."""

    name: str
    aspect: str = "testing framework"
    language: str = ""
    imports: str = ""
    files: str = ""
    packages: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    tool: str = ""


class OutlineRules(Struct, frozen=True):
    """How to read a source file's purpose and the names it defines."""

    suffixes: tuple[str, ...] = ()
    purpose: str = NEVER
    names: tuple[str, ...] = ()
    definition: str = NEVER
    is_source: bool = True


class ManifestFormat(Struct, frozen=True):
    """How to read one kind of manifest."""

    files: tuple[str, ...]
    format: str
    language: str = ""
    sections: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    dependency: str = NEVER
    comment: str = NEVER


@cache
def load_data(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "data" / f"{name}.toml").read_text("utf-8"))


@cache
def load_rows(file: str, table: str, row: type[Row]) -> tuple[Row, ...]:
    return msgspec.convert(load_data(file)[table], tuple[row, ...])


@cache
def find_outline_rules(path: str) -> OutlineRules:
    """Find the rules for reading a file, by its suffix."""
    suffix = path.rpartition(".")[2].lower()
    rows = load_rows("languages", "outline", OutlineRules)
    return next((row for row in rows if suffix in row.suffixes), OutlineRules())


def load_pattern(name: str) -> re.Pattern[str]:
    """Make a pattern that matches any of one list of `intents.toml`, ignoring case."""
    return join_patterns(tuple(load_data("intents")[name]))


@cache
def join_patterns(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


def matches_any(path: str, globs: tuple[str, ...]) -> bool:
    """Return whether a file's name matches, or its path for a glob with a slash."""
    name = path.rpartition("/")[2]
    return any(fnmatch(f"/{path}", f"*/{g}") if "/" in g else fnmatch(name, g) for g in globs)
