"""The tables in `data/`. The head of each TOML file explains its fields."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct


class Framework(Struct, frozen=True):
    """How to recognise one testing framework."""

    name: str
    language: str
    files: tuple[str, ...] = ()
    imports: str = ""
    packages: tuple[str, ...] = ()
    config: str = ""
    tool: str = ""
    kind: str = "framework"
    bundled_with: str = ""
    runs_plain_tests: bool = False


class Language(Struct, frozen=True):
    """How the files of one programming language look."""

    name: str
    suffixes: tuple[str, ...]
    test_path: str
    manifest: str
    plain_test: str = ""
    plain_test_files: tuple[str, ...] = ()

    def has_manifest(self, path: str) -> bool:
        """Return True when the path is a manifest of this language."""
        return bool(re.search(rf"(^|/)({self.manifest})$", path))


class OutlineRules(Struct, frozen=True):
    """How to read the purpose and the names that a source file defines."""

    suffixes: tuple[str, ...] = ()
    purpose: str = ""
    types: str = ""
    functions: str = ""
    tests: str = ""
    definition: str = ""
    is_source: bool = True


class ManifestFormat(Struct, frozen=True):
    """How to read one kind of manifest."""

    name: str
    format: str
    project: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    development: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    dependency: str = ""
    comment: str = ""


class DemoFunction(Struct, frozen=True):
    """A function that the model can write, and its cases: arguments and the expected value."""

    name: str
    source: str
    cases: tuple[tuple[list[Any], Any], ...]


Row = TypeVar("Row")


@cache
def load_data(name: str) -> dict[str, Any]:
    """Return one file of `data/`."""
    text = Path(__file__).with_name("data").joinpath(f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def load_rows(file: str, table: str, row: type[Row]) -> tuple[Row, ...]:
    """Return one array of tables of a file of `data/`."""
    return msgspec.convert(load_data(file)[table], tuple[row, ...])


@cache
def outline_rules(path: str) -> OutlineRules:
    """Return the rules for reading a file, by its suffix."""
    suffix = path.rpartition(".")[2].lower()
    rows = load_rows("languages", "outline", OutlineRules)
    return next((row for row in rows if suffix in row.suffixes), OutlineRules())


@cache
def words(name: str) -> tuple[str, ...]:
    """Return one list of `words.toml`."""
    return tuple(load_data("words")[name].split())


@cache
def phrase(name: str) -> re.Pattern[str]:
    """Return the pattern of one list of `intents.toml`, for example "delegate"."""
    return join_patterns(load_data("intents")[name])


@cache
def intents() -> dict[str, re.Pattern[str]]:
    """Return the pattern of each kind of request, in the order in which they are tried."""
    return {row["name"]: join_patterns(row["patterns"]) for row in load_data("intents")["intent"]}


def join_patterns(patterns: list[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the patterns, letter case ignored."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)
