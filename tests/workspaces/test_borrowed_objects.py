"""Folders of objects: a repository cannot make mudroom show folders outside it to a command."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.workspaces.git_projects import (
    check_out_source,
    make_repository,
    open_store,
    read_files,
    run_git,
)
from tests.workspaces.test_isolated_escapes import TIERS

from mudroom._adapters.sandboxes.choose import SandboxRequest, choose_sandbox
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom.errors import WorkspaceError

FORMS = ("alternates", "relative alternates", "objects is a link", "git is a link", "commondir")


def lead_out(project: Path, private: Path, form: str) -> None:
    """Have a repository say that its objects are in another one."""
    git = project / ".git"
    if "alternates" in form:
        path = private / ".git/objects"
        place = git / "objects/info/alternates"
        place.parent.mkdir(exist_ok=True)
        relative = os.path.relpath(path, git / "objects")
        place.write_text(f"# a comment\n{relative if 'relative' in form else path}\n")
    elif form == "commondir":
        (git / "commondir").write_text(str(private / ".git"))
    else:
        place = git / "objects" if form == "objects is a link" else git
        shutil.rmtree(place)
        place.symlink_to(private / ".git" / ("objects" if form == "objects is a link" else ""))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["", "nested"])
def test_a_repository_cannot_have_other_folders_shown(
    tmp_path: Path, form: str, where: str
) -> None:
    private = make_repository(tmp_path / "private", {"secret": "s"})
    project = make_repository(tmp_path / "project", {"a": "a"})
    top = make_repository(project / where, {"a": "a", "b": "b"}) if where else project
    lead_out(top, private, form)
    workspaces = IsolatedWorkspaces(str(tmp_path / "store"), str(project), str(tmp_path / "home"))
    child = workspaces.open("1.1.1", "", same_path=True)
    assert not any(folder.startswith(str(private)) for folder in child.read_only.values())
    assert read_files(Path(child.files.folder)) == read_files(project)
    if not where:
        assert [note.partition(" (")[0] for note in child.missing] == [".git"]
        assert not Path(child.files.folder, ".git").exists()
    secret = run_git(private, "rev-parse", "HEAD:secret").strip()
    store = workspaces.store
    output = store.git.run("cat-file", "--batch-check", data=f"{secret}\n".encode())
    assert output.endswith(b" missing\n")


def test_alternates_that_appear_later_are_not_followed(tmp_path: Path) -> None:
    private = make_repository(tmp_path / "private", {"secret": "s"})
    project = make_repository(tmp_path / "project", {"a": "a"})
    store = open_store(tmp_path, project)
    store.store_source()
    lead_out(project, private, "alternates")
    secret = run_git(private, "rev-parse", "HEAD:secret").strip()
    output = store.git.run("cat-file", "--batch-check", data=f"{secret}\n".encode())
    assert output.endswith(b" missing\n")


def test_objects_that_come_later_are_borrowed(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project", {"a": "a"})
    store = open_store(tmp_path, project)
    check_out_source(store, tmp_path, "one")
    for number in range(20):
        (project / "a").write_text(str(number))
        run_git(project, "commit", "--quiet", "-am", f"commit {number}")
    _, checkout = check_out_source(store, tmp_path, "two")
    log = run_git(Path(checkout.files.folder), "log", "--oneline")
    assert "commit 19" in log and "first" in log


def test_the_remedy_brings_the_history_back(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", {"a": "a"})
    run_git(tmp_path, "clone", "--quiet", "--shared", str(main), "shared")
    project = tmp_path / "shared"
    workspaces = IsolatedWorkspaces(str(tmp_path / "s1"), str(project), str(tmp_path / "home"))
    child = workspaces.open("1.1.1", "", same_path=False)
    (note,) = child.missing
    assert f"it borrows objects from {main}/.git/objects; `git repack -a -d` copies them" in note
    run_git(project, "repack", "-a", "-d", "-q")
    (project / ".git/objects/info/alternates").unlink()
    workspaces = IsolatedWorkspaces(str(tmp_path / "s2"), str(project), str(tmp_path / "home"))
    child = workspaces.open("1.1.1", "", same_path=False)
    assert child.missing == ()
    assert "first" in run_git(Path(child.files.folder), "log", "--oneline")


@pytest.mark.parametrize("tier", TIERS)
async def test_a_folder_that_became_a_link_is_not_shown(tmp_path: Path, tier: str) -> None:
    workspace, shown, private = (tmp_path / name for name in ("work", "shown", "private"))
    for folder in (workspace, workspace / "mount", shown, private):
        folder.mkdir()
    (private / "key").write_text("secret key")
    request = SandboxRequest(
        workspace=str(workspace),
        mode=tier,
        home=str(tmp_path / "home"),
        environ=os.environ,
        read_only={"mount": str(shown)},
    )
    sandbox, _ = choose_sandbox(request)
    command = f"ls mount; cat mount/key {shown}/key; true"
    await sandbox.run(command, timeout=20, sink=lambda data: None)
    sandbox.close()
    shown.rmdir()
    shown.symlink_to(private)
    with pytest.raises(WorkspaceError, match="is or has become a symbolic link"):
        sandbox, _ = choose_sandbox(request)
        await sandbox.run(command, timeout=20, sink=lambda data: None)
