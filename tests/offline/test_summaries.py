"""Summaries: what each file does, read whole, cut for children, put together again."""

from __future__ import annotations

import os
import re
import struct
import zlib
from pathlib import Path

import pytest
from tests.offline.conftest import Ask

from mudroom_offline.files import FileText, describe_file
from mudroom_offline.next_step import split_batches
from mudroom_offline.plans import Translator
from mudroom_offline.requests import find_folders, find_patterns

OUTLINES = {
    "a.py": '#!/usr/bin/env python\n# Copyright me\n"""Adds things. More."""\n'
    "\nclass A:\n    pass\n\nasync def add():\n    pass\n",
    "a.js": "// Adds things.\nexport class A {}\nexport const add = (a) => a;\n"
    "function hidden() {}\n",
    "a.ts": "/**\n * Adds things.\n */\nexport interface A {}\n"
    "export async function add(): Promise<void> {}\n",
    "a.go": "// Copyright me\n\n// Package a adds things.\npackage a\n"
    "\ntype A struct{}\n\nfunc (a *A) Add() {}\n",
    "a.rs": "//! Adds things.\n\npub struct A;\n\nimpl A {\n    pub fn add() {}\n}\n",
    "A.java": "/* Copyright me */\npackage a;\n\n/** Adds things. */\npublic class A {\n"
    "  public int add(int a) { return a; }\n}\n",
    "a.kt": "// Adds things.\nclass A {\n  fun add(a: Int) = a\n}\n",
    "a.c": "/* Adds things. */\nstruct A { int x; };\n\nint add(int a)\n{\n}\n",
    "a.rb": "# frozen_string_literal: true\n\n# Adds things.\nclass A\n  def add(a)\n  end\nend\n",
    "a.php": "<?php\n/**\n * Adds things.\n */\nclass A {\n  public function add($a) {}\n}\n",
    "A.cs": "// Adds things.\nnamespace X;\npublic class A\n"
    "{\n    public int add(int a) => a;\n}\n",
    "a.ex": 'defmodule A do\n  @moduledoc """\n  Adds things.\n  """\n  def add(a), do: a\nend\n',
    "a.sh": "#!/bin/sh\n# Adds things.\nadd() {\n  :\n}\n",
    "a.swift": "// Adds things.\nstruct A {\n  func add(a: Int) {}\n}\n",
    "a.md": "# Adds things.\n\nText.\n\n## A\n",
}
USUAL = ("Adds things.", "A", "add")
UNUSUAL = {
    "a.go": ("Package a adds things.", "A", "Add"),
    "A.java": ("", "A", "add"),
    "a.sh": ("Adds things.", "", "add"),
    "a.md": ("Adds things.", "A", ""),
}


@pytest.mark.parametrize("name", OUTLINES)
def test_reads_the_outline_of(name: str) -> None:
    about, kind, function = UNUSUAL.get(name, USUAL)
    line = describe_file(FileText(name, OUTLINES[name]), Translator())
    _, _, definitions = line.rpartition("Lines: ")
    assert about in line, line
    assert kind in line and function in definitions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read all .py files", ["**/*.py"]),
        ("summarise src/**/*.ts", ["src/**/*.ts"]),
        ("all markdown files", ["**/*.md"]),
        ("all `*.rs` files", ["**/*.rs"]),
        ("总结所有 .go 文件", ["**/*.go"]),
        ("总结所有 Python 文件", ["**/*.py"]),
        ("summarise docs/*.md and .py files", ["docs/*.md"]),
    ],
)
def test_finds_the_patterns_asked_for(text: str, expected: list[str]) -> None:
    assert find_patterns(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("summarize each .py file in src/pkg/core", ["src/pkg/core"]),
        ("Summarize what is in src/pkg/core.", ["src/pkg/core"]),
        ("what does each file in src/a and src/b do?", ["src/a", "src/b"]),
        ("all files under `lib/x`, briefly", ["lib/x"]),
        ("总结 src/pkg 目录里的所有文件", ["src/pkg"]),
        ("总结 src/pkg 下的每个文件", ["src/pkg"]),
        ("读取在 src/a 和 src/b 中的文件", ["src/a", "src/b"]),
        ("summarize tests/ and docs/", ["tests", "docs"]),
        ("summarize what is in src/a/b.py", []),
        ("the read and/or write functions in JavaScript", []),
        ("all files in src/**/*.py", []),
    ],
)
def test_finds_the_folders_asked_for(text: str, expected: list[str]) -> None:
    assert find_folders(text) == expected


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "certs.py",
            '"""\nkettle.certs\n~~~~~~~~~~~~\n\nThis module returns the CA bundle. More.\n"""\n',
            "6 lines. Line 5: “This module returns the CA bundle. More.”",
        ),
        (
            "app.py",
            'def _private():\n    pass\n\n\nclass Flask(App):\n    """The flask object. It."""\n',
            "6 lines. Lines: `5: class Flask(App):`",
        ),
        ("b.py", "import os\n\n\ndef _private():\n    pass\n", "5 lines"),
        ("c.go", "package c\n\nfunc private() {}\n", "3 lines"),
        (
            "D.java",
            "package d;\n\nimport x;\n\n/**\n * Keeps things. More.\n */\npublic class D {}\n",
            "8 lines. Lines: `8: public class D {}`",
        ),
        (
            "g.ex",
            'defmodule G do\n  @doc """\n      defmodule Bad do\n  """\n  def h, do: 1\nend',
            "6 lines. Lines: `1: defmodule G do`, `5: def h, do: 1`",
        ),
        (
            "i.h",
            "struct j;\nstruct k *l(void);\nstruct m {\n  int n;\n};\n",
            "5 lines. Lines: `3: struct m {`",
        ),
        (
            "e.rs",
            "fn hidden() {}\npub fn shown() {}\n",
            "2 lines. Lines: `2: pub fn shown() {}`",
        ),
        ("f.py", "x = 1", "1 line"),
    ],
)
def test_a_summary_says_the_purpose_and_public_names(name: str, text: str, line: str) -> None:
    assert describe_file(FileText(name, text.rstrip()), Translator()).startswith(line)


def test_a_quotation_keeps_marks_inside_a_line_and_drops_the_end_of_a_comment() -> None:
    line = describe_file(FileText("a.js", "/** Turns a -- b # c into d. */\n"), Translator())
    assert "Line 1: “Turns a -- b # c into d.”" in line


@pytest.mark.parametrize("count", [1, 4, 6, 26, 99, 1000, 5000])
def test_every_file_is_in_exactly_one_batch(count: int) -> None:
    files = [str(n) for n in range(count)]
    cut = split_batches(files)
    assert [f for batch in cut for f in batch] == files
    assert all(1 <= len(batch) <= 40 for batch in cut)


PACKAGE = {
    f"src/pkg/part{n // 8}/m{n}.py": f'"""Does job {n}."""\n\n\ndef job_{n}():\n    pass\n'
    for n in range(24)
} | {"setup.py": '"""Installs."""\n'}


async def test_a_parent_cuts_twenty_five_files_for_five_children_and_merges(ask: Ask) -> None:
    report = await ask(PACKAGE, "Delegate: read all .py files and summarize what each one does")
    assert report.calls["task"] == 5 and "read" not in report.calls
    assert report.ok and "25 of 25 files that match `**/*.py` in this folder:" in report.text
    for n in range(24):
        row = f"| `src/pkg/part{n // 8}/m{n}.py` | 5 lines. Line 1: “Does job {n}.”. "
        row += f"Lines: `4: def job_{n}():` |"
        assert row in report.text
    assert "| `setup.py` | 1 line. Line 1: “Installs.” |" in report.text


async def test_more_files_than_glob_lists_are_all_summarised(ask: Ask) -> None:
    tree = {f"lib/{n % 7}/m{n}.py": f'"""Does job {n}."""\n' for n in range(130)}
    report = await ask(tree, "Summarise all .py files")
    assert "130 of 130 files that match" in report.text
    assert all(f"Does job {n}." in report.text for n in range(130))


async def test_a_few_files_are_read_here(ask: Ask) -> None:
    report = await ask({"a.md": "# One\n", "b.md": "# Two\n"}, "Summarise all markdown files")
    assert report.calls == {"glob": 1, "read": 2}
    assert "One" in report.text and "Two" in report.text


async def test_a_long_file_is_described_by_its_start_and_that_is_said(ask: Ask) -> None:
    text = '"""Long."""\n' + "x = 1\n" * 4500
    report = await ask({"long.py": text}, "Summarise all .py files")
    assert "lines 1-2000 of 4,501. Line 1: “Long.”" in report.text and report.calls["read"] == 1


async def test_more_files_than_can_be_listed_are_counted(ask: Ask) -> None:
    tree = {f"lib/m{n}.py": "" for n in range(104)} | {"a.py": '"""A."""\n'}
    text = (await ask(tree, "Summarise all .py files")).text
    assert re.match(
        r"10[0-5] of 105 files that match .*:\n(?s:.*)empty, binary, links or excluded", text
    )


async def test_files_without_lines_of_text_are_said_to_be_so(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    image = struct.pack(">II", 1, 1) + b"\x08\x06\0\0\0"
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", image), (b"IDAT", zlib.compress(bytes(5))), (b"IEND", b"")):
        data += struct.pack(">I", len(body)) + kind + body
        data += struct.pack(">I", zlib.crc32(kind + body))
    (tmp_path / "tree" / "logo.png").write_bytes(data)
    tree = {"a.py": "", "b.py": "\0\0\0", "c.py": "\n", "d.py": "\n \n\n"}
    report = await ask(tree, "Summarise these files:\n- logo.png\n- a.py\n- b.py\n- c.py\n- d.py")
    rows = report.text.split("\n")[2:]
    assert f"1x1 pixels, {len(data)} bytes |" in rows[0]
    assert rows[1] == "| `a.py` | No line was read: a.py is empty |"
    assert "b.py is a binary file of 3 bytes, not text." in rows[2]
    assert rows[3:] == ["| `c.py` | 1 line, all blank |", "| `d.py` | 3 lines, all blank |"]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "A.cs",
            "class A\n{\n    public static (List<X> V, List<Y> E) Scratchpad(\n        int a)\n",
            "4 lines. Lines: `1: class A`, `3: public static (List<X> V, List<Y> E) Scratchpad(`",
        ),
        (
            "a.md",
            "Text.\n\n```sh\n# install it\n## twice\n```\n\n# Heading\n\n````\n```\n## a\n````\n",
            "13 lines. Line 8: “Heading”",
        ),
        ("b.md", "Text.\n" * 60 + "# Heading\n", "61 lines"),
        ("b.py", "#\n" * 60 + '"""Doc."""\n', "61 lines"),
        ("c.py", '"""Adds some\nthings.\n"""\n', "3 lines. Lines 1-2: “Adds some things.”"),
        ("a.sh", "a() { echo `b | c`; }\n", "1 line. Lines: `` 1: a() { echo `b | c`; } ``"),
    ],
)
def test_a_summary_quotes_lines_with_their_numbers(name: str, text: str, line: str) -> None:
    assert describe_file(FileText(name, text.rstrip("\n")), Translator()) == line


async def test_no_match_is_said(ask: Ask) -> None:
    assert "No file matches" in (await ask({"a.txt": "x"}, "Summarise all .py files")).text


async def test_a_file_name_that_is_not_utf_8_is_read(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with open(os.fsencode(tmp_path / "tree") + b"/caf\xe9.py", "w") as file:
        file.write('"""Makes coffee."""\n')
    report = await ask({"a.py": '"""A."""\n'}, "read all .py files and summarize them")
    assert report.ok and "Makes coffee." in report.text and "2 of 2 files" in report.text


async def test_a_file_that_is_not_there_is_named(ask: Ask) -> None:
    report = await ask({"a.py": "x = 1\n"}, "Summarise a.py and nope.py")
    assert "`a.py`" in report.text and "no file nope.py" in report.text
