"""What a source file is about, read off its text: head comment or docstring, and the names it defines."""

from __future__ import annotations

import re

from msgspec import Struct


class Grammar(Struct, frozen=True):
    """How to read one language: `comment` marks (line, and block begin and end), patterns of `types` and `functions`."""

    comment: str
    types: str = ""
    functions: str = ""


class Outline(Struct, frozen=True):
    """What a file holds."""

    about: str
    types: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


_C = "//"
_JAVA = r"(?m)^\s*(?:@\w+(?:\([^)]*\))?\s+)*(?:(?:public|private|protected|internal|abstract|final|sealed|static|data|open|partial|export)\s+)*"
_TS = Grammar(
    _C,
    r"(?m)^(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:class|interface|enum|type)\s+(\w+)",
    r"(?m)^(?:export\s+)?(?:default\s+)?(?:async\s+)?function\*?\s+(\w+)"
    r"|^(?:export\s+)?(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)\n]*\)(?:\s*:\s*[^=\n]+)?\s*=>|\w+\s*=>)"
    r"|^(?:module\.)?exports\.(\w+)\s*=",
)
_CPP = Grammar(
    _C,
    r"(?m)^[ \t]*(?:template\s*<[^>]*>\s*)?(?:typedef\s+)?(?:class|struct|enum(?:\s+class)?|namespace|union)\s+(?:\w+_API\s+)?(\w+)",
    r"(?m)^(?!return|else|typedef|using|if|while|for|switch)[A-Za-z_][\w:<>,*& \t]{0,100}?[ \t*&](\w+)[ \t]*\([^;{}()]{0,300}\)[ \t]*(?:const\b)?[ \t]*(?:noexcept\b)?[ \t]*\{?[ \t]*$",
)
GRAMMARS = {
    "py pyi": Grammar("#", r"(?m)^class\s+(\w+)", r"(?m)^(?:async\s+)?def\s+(\w+)"),
    "js jsx ts tsx mjs cjs mts cts vue svelte": _TS,
    "go": Grammar(_C, r"(?m)^type\s+(\w+)", r"(?m)^func\s+(?:\([^)]*\)\s*)?(\w+)"),
    "rs": Grammar(
        _C,
        r"(?m)^(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union)\s+(\w+)",
        r"(?m)^\s{0,4}(?:pub(?:\([^)]*\))?\s+)?(?:const\s+|async\s+|unsafe\s+)*fn\s+(\w+)|^macro_rules!\s*(\w+)",
    ),
    "java cs scala groovy": Grammar(
        _C,
        _JAVA + r"(?:class|interface|enum|record|struct|trait|object|@interface)\s+(\w+)",
        r"(?m)^[ \t]+(?:public|protected|internal|def)\s+(?:[\w<>\[\],.?]+[ \t]+)*?(\w+)\s*\(",
    ),
    "kt kts": Grammar(
        _C,
        _JAVA + r"(?:class|interface|enum class|object)\s+(\w+)",
        r"(?m)^[ \t]*(?:\w+[ \t]+)*?fun\s+(?:<[^>]*>\s*)?(?:\w+\.)?(\w+)\s*\(",
    ),
    "rb": Grammar(
        "#", r"(?m)^[ \t]*(?:class|module)\s+([\w:]+)", r"(?m)^[ \t]*def\s+((?:self\.)?\w+[?!]?)"
    ),
    "php": Grammar(
        _C,
        r"(?m)^(?:abstract\s+|final\s+|readonly\s+)*(?:class|interface|trait|enum)\s+(\w+)",
        r"(?m)^[ \t]*(?:(?:public|static|final)\s+)*function\s+&?(\w+)",
    ),
    "c h cc cpp cxx hpp hh m": _CPP,
    "ex exs": Grammar("#", r"(?m)^[ \t]*defmodule\s+([\w.]+)", r"(?m)^[ \t]*defp?\s+(\w+[?!]?)"),
    "swift": Grammar(
        _C,
        r"(?m)^[ \t]*(?:\w+[ \t]+)*?(?:class|struct|enum|protocol|actor|extension)\s+(\w+)",
        r"(?m)^[ \t]*(?:@\w+\s+)*(?:\w+[ \t]+)*?func\s+(\w+)",
    ),
    "dart": Grammar(
        _C,
        r"(?m)^(?:abstract\s+|sealed\s+|final\s+)*(?:class|mixin|enum|extension)\s+(\w+)",
        r"(?m)^[\w<>?]+[ \t]+(\w+)[ \t]*\([^;()]{0,300}\)[ \t]*(?:async[ \t]*)?(?:\{|=>)",
    ),
    "sh bash zsh bats": Grammar("#", "", r"(?m)^[ \t]*(?:function\s+)?([\w-]+)\s*\(\)"),
    "lua": Grammar("--", "", r"(?m)^[ \t]*(?:local\s+)?function\s+([\w.:]+)"),
    "pl pm": Grammar("#", r"(?m)^package\s+([\w:]+)", r"(?m)^[ \t]*sub\s+(\w+)"),
    "hs": Grammar("--", r"(?m)^(?:data|newtype|class|type)\s+(\w+)", r"(?m)^(\w+)\s*::"),
    "sql": Grammar(
        "--",
        r"(?im)^[ \t]*create\s+(?:or replace\s+)?(?:table|view)\s+(?:if not exists\s+)?[\"`]?([\w.]+)",
        r"(?im)^[ \t]*create\s+(?:or replace\s+)?(?:function|procedure)\s+(\w+)",
    ),
    "md markdown mdx": Grammar("", r"(?m)^#{2,3}\s+(.+?)\s*#*$"),
    "rst": Grammar("", r"(?m)^(\S.*)\n[=~-]{3,}\s*$"),
    "css scss less": Grammar("/*", "", r"(?m)^@mixin\s+([\w-]+)"),
    "toml ini cfg": Grammar("#", r"(?m)^\[+([^\]]+)\]+"),
    "yaml yml": Grammar("#", r"(?m)^([\w.-]+):"),
    "json": Grammar("", r'(?m)^(?:  |\t)"([\w./@-]+)":'),
    "proto graphql": Grammar(
        _C, r"(?m)^[ \t]*(?:message|service|enum|type|interface|input)\s+(\w+)"
    ),
}
_BY_SUFFIX = {
    suffix: grammar for suffixes, grammar in GRAMMARS.items() for suffix in suffixes.split()
}
SOURCE_WORDS = "py js jsx ts tsx mjs cjs go rs java cs scala groovy kt rb php c h cc cpp cxx hpp ex exs swift dart sh lua pl pm hs vue svelte"
SOURCE = tuple(SOURCE_WORDS.split())

_NOISE = re.compile(
    r"(?i)copyright|licen[sc]e|spdx|all rights reserved|eslint|@flow|use strict|prettier|coding[:=]|generated (?:by|file|code)|do not edit|"
    r"^\W*$|^!|pylint|type: ignore|ruff:|noqa|@ts-|^\s*(?:author|version|since|package|file)\s*:|go:build|^\+build|pragma once|frozen_string|-\*-|vim:|^region"
)


def outline(path: str, text: str) -> Outline:
    """What the file at `path` holds, by the grammar of its suffix."""
    suffix = path.rpartition(".")[2].lower()
    grammar = _BY_SUFFIX.get(suffix) or (
        Grammar("#", "", "") if text.startswith("#!") else Grammar("")
    )
    if suffix in ("md", "markdown", "mdx", "rst"):
        heading = re.search(r"(?m)^#\s+(.+?)\s*#*$|^(\S.*)\n={3,}\s*$", text)
        return Outline(
            next((g for g in heading.groups() if g), "") if heading else _first_line(text),
            _names(grammar.types, text),
        )
    return Outline(
        _about(suffix, grammar, text), _names(grammar.types, text), _names(grammar.functions, text)
    )


def _names(pattern: str, text: str) -> tuple[str, ...]:
    if not pattern:
        return ()
    found = (
        next(group for group in m.groups() if group)
        for m in re.finditer(pattern, text)
        if any(m.groups())
    )
    return tuple(dict.fromkeys(found))


def _about(suffix: str, grammar: Grammar, text: str) -> str:
    if suffix in ("py", "pyi"):
        m = re.match(r"""(?s)(?:\s*#[^\n]*\n|\s)*[rRuU]?(\"\"\"|'''|")(.*?)\1""", text)
        if m and (said := _sentence(m[2].strip().split("\n\n")[0])):
            return said
    if suffix in ("ex", "exs") and (
        m := re.search(r'@moduledoc\s+(?:~S)?"""\s*\n(.*?)(?:\n\s*\n|""")', text, re.S)
    ):
        return _sentence(m[1])
    head = _block(text) if grammar.comment in ("//", "/*") else ""
    return head or (_lines(grammar.comment, text) if grammar.comment else "")


def _block(text: str) -> str:
    """The first block comment before the code that says something."""
    for m in re.finditer(
        r"(?s)\A(?:\s*(?:<\?php|<script[^>]*>|['\"]use \w+['\"];?|//[^\n]*|package [\w.]+;?))*\s*/\*+(.*?)\*/",
        text[:6000],
    ):
        body = re.sub(r"(?m)^[ \t]*\*+ ?", "", m[1] or "").strip()
        kept = [
            line
            for line in body.split("\n\n")[0].split("\n")
            if not _NOISE.search(line) and not line.startswith("@")
        ]
        if kept and len(kept) == len(body.split("\n\n")[0].split("\n")):
            return _sentence(" ".join(kept))
    return ""


def _lines(mark: str, text: str) -> str:
    """The first run of comment lines at the head of the file that says something."""
    said: list[str] = []
    for line in text.split("\n")[:40]:
        bare = line.strip()
        words = bare.lstrip(mark + "!/ ")
        if bare.startswith(mark) and not bare.startswith("#!") and not _NOISE.search(words):
            said.append(words)
        elif said or (
            bare and not bare.startswith((mark, "#!", "<?", "package ", '"use', "'use", "/*", "*"))
        ):
            break
    return _sentence(" ".join(said))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.split("\n") if line.strip()), "")


def _sentence(text: str) -> str:
    """The first sentence, on one line."""
    flat = re.sub(r"\s+", " ", re.sub(r"(?m)^\W{4,}$", "", text)).strip()
    m = re.match(r"(.{8,}?(?:[.!](?=\s|$)|。))", flat)
    return (m[1] if m else flat).strip()
