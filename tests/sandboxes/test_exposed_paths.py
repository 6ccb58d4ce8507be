"""Paths of a real workspace with real git folders: what commands may see and change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes import detect
from mudroom._adapters.sandboxes.linux.bubblewrap import BubblewrapSandbox
from mudroom._adapters.sandboxes.linux.exposed_paths import (
    find_linked_git,
    find_protected,
    find_secret_dirs,
    make_git_config,
)
from mudroom._adapters.sandboxes.linux.landlock import LandlockSandbox
from mudroom._core.ports import CommandResult, Sandbox
from mudroom.errors import WorkspaceError


def run_git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    run_git(folder, "init")
    run_git(folder, "commit", "--allow-empty", "-m", "first")
    return folder


def list_protected(folder: Path) -> dict[str, bool]:
    return {path.removeprefix(f"{folder}/"): flag for path, flag in find_protected(str(folder))}


def test_only_name_and_email_of_the_users_git_settings_are_shown(tmp_path: Path) -> None:
    (tmp_path / ".config" / "git").mkdir(parents=True)
    (tmp_path / ".config" / "git" / "config").write_text("[user]\n\tname = Old\n\temail = o@x\n")
    assert make_git_config(str(tmp_path)) == (
        '[safe]\n\tdirectory = *\n[user]\n\tname = "Old"\n\temail = "o@x"\n'
    )
    (tmp_path / ".gitconfig").write_text(
        '[core]\n\tpager = evil\n[user]\n\tname = "New Name"\n\tsigningkey = KEY\n'
        "[credential]\n\thelper = store\n\temail = no@x\n"
    )
    assert make_git_config(str(tmp_path)) == (
        '[safe]\n\tdirectory = *\n[user]\n\tname = "New Name"\n\temail = "o@x"\n'
    )


def test_without_git_settings_commands_have_a_neutral_user(tmp_path: Path) -> None:
    assert 'name = "user"\n\temail = "user@sandbox"' in make_git_config(str(tmp_path))


def test_key_folders_are_hidden_only_in_a_workspace_that_holds_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".local/share/keyrings").mkdir(parents=True)
    (home / ".netrc").write_text("a file")
    folders = [f"{home}/.ssh", f"{home}/.local/share/keyrings"]
    for workspace in (home, tmp_path, Path("/")):
        assert find_secret_dirs(str(workspace), str(home)) == folders
    for workspace in (home / "project", tmp_path / "ho"):
        assert find_secret_dirs(str(workspace), str(home)) == []


def test_settings_and_hooks_of_git_folders_are_protected(project: Path) -> None:
    for name in ("outer", "outer/modules/inner", "libs/deep"):
        (project / ".git/modules" / name / "hooks").mkdir(parents=True)
        (project / ".git/modules" / name / "config").touch()
    (project / "notes.txt").touch()
    protected = list_protected(project)
    assert protected[".git"] is True
    expected = {".git/config", ".git/hooks"} | {
        f".git/modules/{name}/{entry}"
        for name in ("outer", "outer/modules/inner", "libs/deep")
        for entry in ("config", "hooks")
    }
    assert expected <= {path for path, flag in protected.items() if not flag}
    assert "notes.txt" not in protected


def test_protected_files_and_folders_are_protected_whole_and_links_left_out(project: Path) -> None:
    (project / ".claude").mkdir()
    (project / ".bashrc").symlink_to("elsewhere")
    (project / ".mudroom.toml").touch()
    (project / ".git" / "config").write_bytes(b"[core]\n\thooksPath = \xff\n")
    protected = list_protected(project)
    assert protected[".claude"] is False
    assert protected[".mudroom.toml"] is False
    assert protected[".git/config"] is False
    assert ".bashrc" not in protected


def test_files_that_git_settings_name_are_protected(project: Path, tmp_path: Path) -> None:
    (project / "my-hooks").mkdir()
    (project / "shared.cfg").touch()
    (project / "link.cfg").symlink_to("shared.cfg")
    (tmp_path / "outside.cfg").touch()
    run_git(project, "config", "core.hooksPath", "my-hooks")
    for path in ("../shared.cfg", "../link.cfg", str(tmp_path / "outside.cfg"), "none.cfg"):
        run_git(project, "config", "--add", "include.path", path)
    protected = list_protected(project)
    assert {"my-hooks", "shared.cfg"} <= protected.keys()
    assert not {"link.cfg", "none.cfg", str(tmp_path / "outside.cfg")} & protected.keys()


def test_the_environment_of_the_program_is_protected_in_a_workspace(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", f"{project}/.venv")
    assert list_protected(project)[".venv"] is False
    monkeypatch.setattr(sys, "prefix", f"{project}-other/.venv")
    assert not any(path.endswith(".venv") for path in list_protected(project))


def test_a_linked_worktree_exposes_its_common_git_folder_only_if_both_agree(
    project: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    run_git(project, "worktree", "add", str(linked))
    assert find_linked_git(str(linked)) == [str(project / ".git")]
    assert find_linked_git(str(project)) == []
    (linked / ".git").write_text("gitdir: ../project/.git/worktrees/linked\n")
    assert find_linked_git(str(linked)) == [str(project / ".git")], "a relative path is valid"
    thief = tmp_path / "thief"
    thief.mkdir()
    (thief / ".git").write_text((linked / ".git").read_text())
    assert find_linked_git(str(thief)) == [], "the git folder does not point back"
    (project / ".git/worktrees/linked/commondir").write_text(str(tmp_path))
    assert find_linked_git(str(linked)) == [], "the folder is not below the common one"


FOUND = detect.run_probes(detect.find_bwrap(os.environ, "/nonexistent"), tempfile.gettempdir())


@pytest.fixture(params=["full", "file"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    (tmp_path / "proj").mkdir()
    root, away = str(tmp_path / "proj"), str(tmp_path / "away")
    if FOUND.no_full_reason if request.param == "full" else FOUND.no_file_reason:
        pytest.skip("this sandbox is not available here")
    if request.param == "full":
        return BubblewrapSandbox(
            root,
            FOUND.bwrap,
            quarantine=away,
            environ={"PATH": os.defpath},
            keep_root_uid=bool(FOUND.no_other_user_reason),
        )
    return LandlockSandbox(root, quarantine=away, environ={"PATH": os.defpath})


async def test_a_missing_workspace_is_an_error(box: Sandbox, tmp_path: Path) -> None:
    assert (await box.run("true", timeout=60, sink=lambda _: None)) == CommandResult(0)
    shutil.rmtree(tmp_path / "proj")
    for _ in range(2):
        with pytest.raises(WorkspaceError, match=r"was not run|cannot be read"):
            await box.run("echo x > file", timeout=60, sink=lambda _: None)
