"""Modes of files that land: private files stay private, all others follow the umask."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository

from mudroom._adapters.workspaces.isolated.kept_work import add_ignored
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.agents import WorkspaceSpec
from mudroom._core.runs import Work

MAKE = {
    "plain": "echo x > plain",
    "program": "echo x > program; chmod +x program",
    "secret": "echo x > secret; chmod 600 secret",
    "tool": "echo x > tool; chmod 700 tool",
    "team": "echo x > team; chmod 640 team",
    "unreadable": "echo x > unreadable; chmod 200 unreadable",
    "closed/inner": "mkdir -m 700 closed; echo x > closed/inner",
    "closed/deep/inner": "mkdir -p closed/deep; chmod 700 closed; echo x > closed/deep/inner",
    "shared/inner": "mkdir -m 750 shared; echo x > shared/inner",
    "was-file/inner": "rm was-file; mkdir was-file; echo x > was-file/inner; chmod 600 was-file/*",
    "was-folder": "rm -r was-folder; echo x > was-folder; chmod 600 was-folder",
    "was-link": "rm was-link; echo x > was-link; chmod 600 was-link",
    "open": "echo x > open; chmod 666 open",
    "read-only": "echo x > read-only; chmod 444 read-only",
    "special": "echo x > special; chmod 4755 special",
}
PERMISSIONS = {
    "plain": 0o666,
    "program": 0o777,
    "secret": 0o600,
    "tool": 0o700,
    "team": 0o640,
    "unreadable": 0o600,
    "closed/inner": 0o600,
    "closed/deep/inner": 0o600,
    "shared/inner": 0o660,
    "was-file/inner": 0o600,
    "was-folder": 0o600,
    "was-link": 0o600,
    "open": 0o666,
    "read-only": 0o666,
    "special": 0o777,
}
"""Permissions of the files in the user's folder, before the umask."""


@pytest.fixture(params=[0o022, 0o027, 0o077, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def make_project(folder: Path) -> Path:
    project = make_repository(folder / "project", {"was-file": "x", "was-folder/a": "x"})
    (project / "was-link").symlink_to("was-file")
    (project / ".gitignore").write_text("*.env\n")
    return project


def open_workspaces(folder: Path) -> IsolatedWorkspaces:
    return IsolatedWorkspaces(str(folder / "state"), str(folder / "project"), str(folder / "home"))


def run_child(workspaces: IsolatedWorkspaces, command: str, run: str = "1.1.1") -> Work:
    child = workspaces.open(run, "", same_path=False).files.folder
    subprocess.run(["sh", "-ec", command], cwd=child, check=True)
    workspaces.store_present(run)  # as a merge of the child's own children does
    return workspaces.store_work(run)


def find_mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_new_files_follow_the_umask_and_private_ones_stay_private(
    tmp_path: Path, umask: int
) -> None:
    project = make_project(tmp_path)
    workspaces = open_workspaces(tmp_path)
    work = run_child(workspaces, "; ".join(MAKE.values()))
    workspaces.land("", workspaces.plan_merge("", work).files, lambda: None)
    found = {path: oct(find_mode(project / path)) for path in MAKE}
    assert found == {path: oct(mode & ~umask) for path, mode in PERMISSIONS.items()}


def test_private_files_of_several_works_stay_private_in_one_landing(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    workspaces = open_workspaces(tmp_path)
    first = run_child(workspaces, "echo x > first; chmod 600 first", "1.1.1")
    second = run_child(workspaces, "echo x > second; chmod 600 second", "1.1.2")
    plan = workspaces.plan_merge("", second, workspaces.plan_merge("", first))
    workspaces.land("", plan.files, lambda: None)
    assert [find_mode(project / name) for name in ("first", "second")] == [0o600, 0o600]


def test_nothing_of_a_private_file_can_be_read_while_it_is_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path)
    (project / "was-file").chmod(0o600)
    workspaces = open_workspaces(tmp_path)
    work = run_child(workspaces, "echo x > was-file; echo x > new; chmod 600 new")
    modes: list[int] = []

    def look(*_: int) -> None:
        modes.extend(list_temporary_modes(project))

    monkeypatch.setattr(os, "fsync", look)
    monkeypatch.setattr(os, "fchmod", look)
    workspaces.land("", workspaces.plan_merge("", work).files, lambda: None)
    assert set(modes) == {0o600}


def list_temporary_modes(project: Path) -> list[int]:
    return [find_mode(path) for path in project.rglob(".mudroom*")]


def test_a_private_file_that_a_child_moves_or_copies_stays_private(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    (project / "secret").write_text("secret\n")
    (project / "was-folder/a").chmod(0o600)
    (project / "secret").chmod(0o600)
    workspaces = open_workspaces(tmp_path)
    work = run_child(workspaces, "mv secret moved; cp was-folder/a copied; echo x >> was-folder/a")
    workspaces.land("", workspaces.plan_merge("", work).files, lambda: None)
    names = ("moved", "copied", "was-folder/a")
    assert [find_mode(project / name) for name in names] == [0o600] * 3


def test_a_private_file_stays_private_in_work_that_comes_back(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    workspaces = open_workspaces(tmp_path)
    work = run_child(workspaces, "echo x > secret; chmod 600 secret; echo child > was-file")
    (project / "was-file").write_text("user")
    plan = workspaces.plan_merge("", work)
    assert plan.conflicts
    spec = WorkspaceSpec(base=plan.base, tree=plan.tree, own=plan.own)
    again = workspaces.open("1.1.1~2", "", start=spec, same_path=False).files.folder
    assert find_mode(Path(again, "secret")) == 0o600
    Path(again, "was-file").write_text("both")
    plan = workspaces.plan_merge("", workspaces.store_work("1.1.1~2"))
    workspaces.land("", plan.files, lambda: None)
    assert find_mode(project / "secret") == 0o600


def test_another_name_of_a_file_keeps_the_old_content(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    os.link(project / "was-file", tmp_path / "another name")
    workspaces = open_workspaces(tmp_path)
    work = run_child(workspaces, "echo new > was-file")
    workspaces.land("", workspaces.plan_merge("", work).files, lambda: None)
    assert (project / "was-file").read_text() == "new\n"
    assert (tmp_path / "another name").read_text() == "x"


def test_private_files_that_git_ignores_land_private(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    workspaces = open_workspaces(tmp_path)
    work = run_child(workspaces, "echo x > a.env; chmod 600 a.env; echo x > b.env")
    work = add_ignored(workspaces, work)
    workspaces.land("", workspaces.plan_merge("", work).files, lambda: None)
    assert find_mode(project / "a.env") == 0o600
    assert find_mode(project / "b.env") != 0o600
