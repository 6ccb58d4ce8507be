"""The tables in `data/`: frameworks, languages, build tools, and the words of requests."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct


class Framework(Struct, frozen=True):
    """How to recognise one testing framework. The head of `frameworks.toml` explains the fields."""

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
    """How the files of one programming language look. `languages.toml` explains the fields."""

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
    """How to read the comment mark, types and functions of a source file."""

    suffixes: tuple[str, ...] = ()
    comment: str = ""
    types: str = ""
    functions: str = ""


@cache
def frameworks() -> tuple[Framework, ...]:
    """Return all testing frameworks that the model knows."""
    return msgspec.convert(_load("frameworks")["framework"], tuple[Framework, ...])


@cache
def languages() -> dict[str, Language]:
    """Return all programming languages by name."""
    rows = msgspec.convert(_load("languages")["language"], tuple[Language, ...])
    return {language.name: language for language in rows}


@cache
def outline_rules() -> dict[str, OutlineRules]:
    """Return the rules for reading a source file, by suffix without a dot."""
    rows = msgspec.convert(_load("languages")["outline"], tuple[OutlineRules, ...])
    return {suffix: rules for rules in rows for suffix in rules.suffixes}


@cache
def build_tools() -> dict[str, dict[str, str]]:
    """Return package managers, build tools and build backends: aspect -> name -> pattern."""
    return _load("build_tools")


@cache
def words(name: str) -> tuple[str, ...]:
    """Return one list of `words.toml`."""
    return tuple(_load("words")[name].split())


@cache
def translations() -> dict[str, str]:
    """Return the Chinese texts of answers by their English text."""
    return _load("chinese")


@cache
def intents() -> dict[str, re.Pattern[str]]:
    """Return the pattern of each kind of request, in the order in which they are tried."""
    return {row["name"]: _any_of(row["patterns"]) for row in _load("intents")["intent"]}


@cache
def phrase(name: str) -> re.Pattern[str]:
    """Return the pattern of one list of `intents.toml`, for example "delegate"."""
    return _any_of(_load("intents")[name])


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


@cache
def _load(name: str) -> dict[str, Any]:
    text = Path(__file__).with_name("data").joinpath(f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


class ManifestFormat(Struct, frozen=True):
    """How to read one kind of manifest. The head of `manifests.toml` explains the fields."""

    name: str
    format: str
    project: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    development: tuple[str, ...] = ()
    dependency: str = ""
    comment: str = ""


@cache
def manifest_formats() -> tuple[ManifestFormat, ...]:
    """Return all kinds of manifest."""
    return msgspec.convert(_load("manifests")["manifest"], tuple[ManifestFormat, ...])
