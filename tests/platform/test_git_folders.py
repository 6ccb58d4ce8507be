"""Git folders of others, read as data: the configuration as git reads it, pointers both ways."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from tests.workspaces.git_projects import ENVIRONMENT, make_repository, run_git

from mudroom._platform.git_folders import GitFolders, find_git_folders, parse_git_config

PIECES = [
    *('"', "\\", "\\\n", '\\"', "\\n", "\\t", "\\\\", "#", ";", " ", "\t", "a", "B", "=", "../x"),
    *("é", "[", "]", "\r\n", "\\q"),
]


SECTIONS = ["[core]", '[remote "O\\"r"]', "[ Core ]", "[core.Sub]", "[core] x=1"]


def read_with_git(folder: Path, text: str) -> dict[str, str] | None:
    """Return the settings as git reads them, None if it refuses the text."""
    path = folder / "config"
    path.write_text(text, newline="")
    command = ["git", "config", "--file", str(path), "--no-includes", "-z", "--list"]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False, cwd="/")
    if result.returncode:
        return None
    entries = [entry.partition("\n") for entry in result.stdout.decode().split("\0") if entry]
    return {name: value if newline else "true" for name, newline, value in entries}


def _blank(settings: dict[str, str]) -> dict[str, str]:
    """Git before 2.46 makes a blank of each tab in a value."""
    return {name: value.replace("\t", " ") for name, value in settings.items()}


@pytest.mark.parametrize("seed", range(3))
def test_a_configuration_is_read_as_git_reads_it(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    compared = 0
    for _ in range(60):
        values = ["".join(draw.choices(PIECES, k=draw.randrange(6))) for _ in range(2)]
        section = draw.choice(SECTIONS)
        text = f"; first\n{section}\n\tworkTree = {values[0]}\n Bare\n [a-b]y ={values[1]} \n"
        expected = read_with_git(tmp_path, text)
        if expected is not None:
            compared += 1
            assert _blank(parse_git_config(text)) == _blank(expected), text
    assert compared > 10


def test_git_folders_are_found_as_git_makes_them(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", {"a": "a"})
    library = make_repository(tmp_path / "library", {"l": "l"})
    run_git(main, "submodule", "--quiet", "add", str(library), "sub")
    run_git(main, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    git = f"{main}/.git"
    assert find_git_folders(str(main)) == GitFolders(git, git)
    assert find_git_folders(str(main / "sub")) == GitFolders(*[f"{git}/modules/sub"] * 2)
    linked = find_git_folders(str(tmp_path / "linked"))
    assert linked == GitFolders(f"{git}/worktrees/linked", git)
    assert find_git_folders(str(tmp_path)) is None


def make_own(folder: Path, files: dict[str, str]) -> None:
    """Make a folder that looks like a git folder."""
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in {"HEAD": "ref: refs/heads/main\n", "config": "", **files}.items():
        path = folder / name
        path.write_text(text)


FORGED = ("a link", "commondir", "a worktree", "a submodule", "the parent is called worktrees")


@pytest.mark.parametrize("form", FORGED)
def test_a_folder_outside_is_not_a_git_folder_because_one_inside_says_so(
    tmp_path: Path, form: str
) -> None:
    private = make_repository(tmp_path / "private", {"secret": "s"})
    git = f"{private}/.git"
    work = tmp_path / "worktrees" / "work"
    work.mkdir(parents=True)
    if form == "a link":
        (work / ".git").symlink_to(git)
    elif form == "commondir":
        make_own(work / ".git", {"commondir": git})
    elif form == "a worktree":
        (work / ".git").write_text("gitdir: fake/worktrees/x\n")
        make_own(work / "fake/worktrees/x", {"gitdir": f"{work}/.git", "commondir": git})
    elif form == "a submodule":
        (work / ".git").write_text("gitdir: fake\n")
        worktree = {"config": f"[core]\n\tworktree = {work}\n", "commondir": git}
        make_own(work / "fake", worktree)
    else:
        (work / ".git").write_text("gitdir: .\n")
        make_own(work, {"gitdir": f"{work}/.git", "commondir": "../.."})
    assert find_git_folders(str(work)) is None


@pytest.mark.parametrize("name", [".git", ".git/HEAD", "gitdir", "commondir", "config"])
def test_pipes_are_not_waited_for(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    make_own(work / "fake/worktrees/x", {})
    if name.startswith(".git/"):
        make_own(work / ".git", {})
        (work / ".git/HEAD").unlink()
        os.mkfifo(work / name)
    elif name == ".git":
        os.mkfifo(work / name)
    else:
        (work / ".git").write_text("gitdir: fake/worktrees/x\n")
        place = work / "fake/worktrees/x" / name
        place.unlink(missing_ok=True)
        os.mkfifo(place)
    find_git_folders(str(work))
