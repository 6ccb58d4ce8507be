"""What glob and grep say about absence: each reason, for each tool, named by the call or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import pytest
from tests.tools.conftest import Call, Run

from mudroom.permissions.policy import FilteredWorkspace

NEEDLE = "needle in it\n"


def write(path: Path, content: bytes = NEEDLE.encode()) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


IGNORED = {
    "ignored folder": ("/place/\n", "1 ignored file (place/)"),
    "ignored content": ("place/*\n", "1 ignored file (place/deep/)"),
    "ignored file": ("file.txt\n", "1 ignored file (place/deep/file.txt)"),
    "link to a folder": ("", "1 link (place)"),
}
"""Reason -> the patterns that git ignores, and what a result says of the file."""


def make_unseen(root: Path, reason: str) -> None:
    """Make the file place/deep/file.txt, which is not searched unless a call names it."""
    if patterns := IGNORED[reason][0]:
        (root / ".gitignore").write_text(patterns)
        write(root / "place" / "deep" / "file.txt")
    else:
        write(root / ".git" / "hidden" / "deep" / "file.txt")
        (root / "place").symlink_to(".git/hidden")


NAMING: list[tuple[str, dict[str, str]]] = [
    ("grep", {"pattern": "needle", "path": "place"}),
    ("grep", {"pattern": "needle", "path": "place/deep/file.txt"}),
    ("grep", {"pattern": "needle", "path": "place/deep", "glob": "*.txt"}),
    ("grep", {"pattern": "needle", "glob": "place/deep/file.txt"}),
    ("glob", {"pattern": "place/deep/file.txt"}),
    ("glob", {"pattern": "place/deep/*.txt"}),
    ("glob", {"pattern": "**/*.txt", "path": "place"}),
    ("glob", {"pattern": "{place,other}/deep/file.txt"}),
    ("read", {"file_path": "place/deep/file.txt"}),
]


@pytest.mark.parametrize("reason", IGNORED)
@pytest.mark.parametrize(("tool", "arguments"), NAMING, ids=str)
async def test_a_place_that_the_call_names_is_searched(
    ctx: Run, call: Call, reason: str, tool: str, arguments: dict[str, str]
) -> None:
    make_unseen(ctx.root, reason)
    result = await call(tool, **arguments)
    assert not result.error
    expected = "1\tneedle in it" if tool == "read" else "place/deep/file.txt"
    assert result.text == expected


UNNAMED: list[tuple[str, dict[str, str], str]] = [
    ("grep", {"pattern": "needle"}, "no matches"),
    ("grep", {"pattern": "needle", "glob": "*.txt"}, "no files match *.txt"),
    ("glob", {"pattern": "**/*.txt"}, "no files match **/*.txt"),
]


@pytest.mark.parametrize("reason", IGNORED)
@pytest.mark.parametrize(("tool", "arguments", "nothing"), UNNAMED, ids=str)
async def test_what_was_not_searched_is_named(
    ctx: Run, call: Call, reason: str, tool: str, arguments: dict[str, str], nothing: str
) -> None:
    note = IGNORED[reason][1]
    make_unseen(ctx.root, reason)
    text = (await call(tool, **arguments)).text
    assert note in text and (nothing in text or "nothing was searched" in text)
    write(ctx.root / "other.txt")
    assert (await call(tool, **arguments)).text == f"other.txt\n(not searched: {note})"


async def test_an_ignored_file_that_the_filter_refuses_is_not_named(ctx: Run, call: Call) -> None:
    make_unseen(ctx.root, "ignored folder")
    assert (await call("glob", pattern="*.zig")).text == "(no files match *.zig)"
    found = await call("grep", pattern="needle", glob="*.zig")
    assert found.text == "(nothing was searched: no files match *.zig)"


REASONS: dict[str, tuple[bytes, str, str]] = {
    "binary": (b"\x89PNG\r\n\x1a\n\0needle\n", "needle", "1 binary file (f)"),
    "unknown": ("# Привет\n".encode("cp1251"), "Привет", "1 file in an encoding that cannot"),
}


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("named", [True, False])
async def test_files_that_are_not_text_for_grep_are_named(
    ctx: Run, call: Call, reason: str, named: bool
) -> None:
    content, pattern, note = REASONS[reason]
    write(ctx.root / "f", content)
    text = (await call("grep", pattern=pattern, path="f" if named else ".")).text
    assert note in text and not text.startswith("(no matches")


async def test_a_large_file_that_cannot_be_decoded_is_named(
    ctx: Run, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom._adapters.tools.text.file_text.MAX_INSPECTED", 1_000)
    write(ctx.root / "wide", "needle\n".encode("utf-16") * 1_000)
    write(ctx.root / "plain", b"needle\n" * 1_000)
    text = (await call("grep", pattern="needle")).text
    assert text == "plain\n(not searched: 1 file too large to decode (wide))"


async def test_folders_nested_too_deep_and_pipes_are_named(ctx: Run, call: Call) -> None:
    folder = os.open(ctx.root, os.O_RDONLY)
    for _ in range(203):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    os.mkfifo(ctx.root / "pipe")
    text = (await call("grep", pattern="needle")).text
    assert "1 folder that is nested too deep (d/d/d" in text
    assert "1 pipe, socket or device (pipe)" in text
    assert len(text) < 1_000
    assert "1 folder that is nested too deep" in (await call("glob", pattern="**/*.py")).text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("grep", {"pattern": "needle"}),
        ("grep", {"pattern": "needle", "path": "secret"}),
        ("grep", {"pattern": "needle", "path": "secret/key"}),
        ("grep", {"pattern": "needle", "glob": "secret/key"}),
        ("grep", {"pattern": "needle", "path": "lnk"}),
        ("glob", {"pattern": "**/k*"}),
        ("glob", {"pattern": "secret/key"}),
        ("glob", {"pattern": "secret/k*"}),
        ("glob", {"pattern": "lnk/k*"}),
        ("glob", {"path": "secret"}),
    ],
    ids=str,
)
async def test_denied_files_are_counted_and_never_named(
    ctx: Run, call: Call, tool: str, arguments: dict[str, str]
) -> None:
    (ctx.root / ".gitignore").write_text("secret/\n")
    write(ctx.root / "secret" / "key")
    (ctx.root / "lnk").symlink_to("secret")

    def refuse(path: str) -> str:
        return "a rule forbids it" if path.endswith("/key") else ""

    ctx.workspace = FilteredWorkspace(ctx.workspace, refuse)  # pyright: ignore[reportAttributeAccessIssue]
    text = (await call(tool, **arguments)).text
    for value in arguments.values():
        text = text.replace(value, "…").replace("match key in secret", "…")
    assert "key" not in text and "needle" not in text
    is_named = any("secret" in value or "lnk" in value for value in arguments.values())
    assert not is_named or "1 file that may not be read" in text


async def test_huge_ignored_folders_are_counted_up_to_a_limit(
    ctx: Run, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom._adapters.tools._search_scope._MAX_COUNTED_FILES", 20)
    (ctx.root / ".gitignore").write_text("node_modules/\nvenv/\n")
    for number in range(50):
        write(ctx.root / "node_modules" / f"{number:02}.js")
    write(ctx.root / "venv" / "x.py")
    text = (await call("grep", pattern="needle", glob="*.js")).text
    assert "at least 20 ignored files (node_modules/" in text
    text = (await call("glob", pattern="*.py")).text
    assert "ignored files (node_modules/, venv/)" in text and "at least" not in text


async def test_49_a_link_that_leads_out_is_named_and_not_followed(ctx: Run, call: Call) -> None:
    write(ctx.root.parent / "outside" / "file.txt")
    (ctx.root / "lnk").symlink_to(ctx.root.parent / "outside")
    (ctx.root / "user").symlink_to(ctx.root.parent / "outside" / "file.txt")
    (ctx.root / "loop").symlink_to(".")
    assert "3 links (lnk, loop, user)" in (await call("glob", pattern="**")).text
    found = (await call("grep", pattern="needle")).text
    assert "3 links (lnk, loop, user)" in found and "in the files that were searched" not in found
    for pattern in ("lnk/*.txt", "lnk/file.txt", "**/lnk/file.txt"):
        assert "1 link that cannot be followed (lnk)" in (await call("glob", pattern=pattern)).text
        assert (await call("grep", pattern="needle", glob=pattern)).text.startswith("(")
    assert (await call("glob", pattern="user")).text.startswith("(")
    for path in ("lnk", "user", str(ctx.root.parent / "outside" / "file.txt")):
        assert (await call("grep", pattern="needle", path=path)).error
    write(ctx.root / "loop" / "own.txt")
    looped = await call("glob", pattern="**/loop/own.txt")
    assert looped.text.splitlines()[0] == "loop/own.txt"


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("glob", {"pattern": "src/upper.py"}, "src/Upper.PY differs only in case"),
        ("glob", {"pattern": "SRC/*.PY"}, "src/Upper.PY differs only in case"),
        ("glob", {"pattern": "*", "path": "SRC"}, "but src does: upper and lower case differ"),
        ("grep", {"pattern": "needle", "path": "SRC"}, "but src does: upper and lower case differ"),
        ("glob", {"pattern": "café.txt"}, "differs only in case or in the form of its letters"),
        ("grep", {"pattern": "needle", "path": "café.txt"}, "it looks the same"),
    ],
    ids=str,
)
async def test_a_name_that_differs_by_case_or_form_is_told(
    ctx: Run, call: Call, tool: str, arguments: dict[str, str], expected: str
) -> None:
    write(ctx.root / "src" / "Upper.PY")
    write(ctx.root / "cafe\u0301.txt")
    assert expected in (await call(tool, **arguments)).text


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "pattern", ["café", "ve café$", "(café|thé)s?", "ÅNGSTRÖM", "한국어", "ガイド", "é{2}"]
)
async def test_a_pattern_in_any_normal_form_finds_text_in_each(
    ctx: Run, call: Call, pattern: str, form: Literal["NFC", "NFD"]
) -> None:
    text = "café\nna\u00efve café\nthés\nÅNGSTRÖM\n한국어\nガイド\néé\n"
    (ctx.root / "composed.txt").write_text(normalize("NFC", text))
    (ctx.root / "decomposed.txt").write_text(normalize("NFD", text))
    found = await call("grep", pattern=normalize(form, pattern))
    assert found.text.split("\n") == ["composed.txt", "decomposed.txt"]
