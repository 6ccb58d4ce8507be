"""Figures in the documentation: each names a commit that exists, and the pages are as written."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from benchmarks.history import HISTORY, Entry, append_entry, read_last_entry
from benchmarks.pages import (
    BEGIN,
    END,
    PERFORMANCE,
    RELIABILITY,
    ROOT,
    find_commit,
    format_performance,
    format_reliability,
    read_figures,
    write_figures,
)

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_HASH = r"(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}"
_NAMED = re.compile(rf"\b[Cc]ommits? `?({_HASH})\b`?(?: (?:to|and) `?({_HASH})\b)?")
_IN_BRACKETS = re.compile(rf"\(({_HASH})\)|\bat ({_HASH})\b")


def find_commits(text: str) -> list[str]:
    """Return the commits that a page names as the origin of figures."""
    text = " ".join(text.split())
    found = [*_NAMED.findall(text), *_IN_BRACKETS.findall(text)]
    return [commit for groups in found for commit in groups if commit]


def git(*arguments: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@cache
def list_history() -> frozenset[str]:
    """Return all commits of the history; skip without it, as in a package or a shallow clone."""
    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != ROOT.resolve():
            pytest.skip("not the repository of the project")
        if git("rev-parse", "--is-shallow-repository") != "false":
            pytest.skip("a shallow clone")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git or no history")
    return frozenset(git("rev-list", "HEAD").split())


def exists(commit: str) -> bool:
    return any(each.startswith(commit) for each in list_history())


def test_commits_are_found_in_the_forms_that_pages_use() -> None:
    text = """Measured at commits
    5cf1806 to 5db0bfb. | `a.py` (2dbf004) | (22 November, commit d12d815c) | load 14, at 8a7eb05;
    at 3600000 milliseconds, session bdb54c82, in the commit message, (effaced), commit `93496bb`"""
    expected = ["5cf1806", "5db0bfb", "d12d815c", "93496bb", "2dbf004", "8a7eb05"]
    assert find_commits(text) == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_commit_that_a_page_names_exists(page: Path) -> None:
    commits = find_commits(page.read_text(encoding="utf-8"))
    assert [commit for commit in commits if not exists(commit)] == []


def test_each_commit_of_the_history_of_benchmarks_exists() -> None:
    commits = [json.loads(line)["commit"] for line in HISTORY.read_text().splitlines()]
    assert commits
    assert [commit for commit in commits if not exists(commit)] == []


def test_the_page_has_the_last_figures_of_the_history() -> None:
    last = read_last_entry()
    assert last is not None
    assert read_figures(PERFORMANCE) == format_performance(last)
    assert find_commits(read_figures(PERFORMANCE)) == [last.commit]
    assert find_commits(read_figures(RELIABILITY))


def test_figures_replace_those_of_the_page_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    entry = Entry("2026-11-28", "c0ffee11", 1.5, {"CPU": (2.0, 1.0)}, {"CPU": "ms"})
    append_entry(entry, tmp_path / "history.jsonl")
    write_figures(page, format_performance(entry))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "28 November 2026 at commit c0ffee11" in text
    assert "| CPU | 2 ms | 1 ms | 2.00 |" in text
    write_figures(page, format_reliability([("killed", "9 points")], "c0ffee11"))
    assert "| killed | 9 points |" in page.read_text() and "| CPU |" not in page.read_text()
    page.write_text("no marks")
    with pytest.raises(SystemExit, match=r"page\.md: the marks"):
        write_figures(page, "figures")


def test_figures_of_changed_files_are_refused(tmp_path: Path) -> None:
    try:
        git("init", "-q", cwd=tmp_path)
    except OSError:
        pytest.skip("no git")
    (tmp_path / "code.py").write_text("1")
    git("add", "-A", cwd=tmp_path)
    identity = ("-c", "user.name=N", "-c", "user.email=e@example.org")
    git(*identity, "commit", "-qm", "first", cwd=tmp_path)
    assert git("rev-parse", "HEAD", cwd=tmp_path).startswith(find_commit(tmp_path))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "performance.md").write_text("written by the first half")
    git("add", "-A", cwd=tmp_path)
    assert find_commit(tmp_path)
    (tmp_path / "code.py").write_text("2")
    with pytest.raises(SystemExit, match=r"belong to a commit, but files differ.*code\.py"):
        find_commit(tmp_path)
    with pytest.raises(SystemExit, match="need the repository"):
        find_commit(tmp_path / "docs" / "absent")
