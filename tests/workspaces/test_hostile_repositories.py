"""No setting of a repository starts a program, and no pipe in it makes mudroom wait."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.workspaces.hostile_repositories import (
    Markers,
    exercise,
    list_git_folders,
    make_project,
    run_plain_git,
)

PLAIN: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("ls-files", "-i", "-c", "--exclude-standard"),
    ("diff",),
    ("log", "-p", "-1"),
    ("add", "a.txt"),
    ("commit", "--allow-empty", "-m", "x"),
    ("fetch", "second"),
)


def test_no_setting_of_a_repository_starts_a_program(tmp_path: Path) -> None:
    project = make_project(tmp_path / "work")
    linked = tmp_path / "work/linked"
    markers = Markers(tmp_path / "markers")
    for folder in list_git_folders(project):
        markers.poison(folder)
    for number, source in enumerate((project, linked, project / "nested", project / "sub")):
        assert exercise(source, tmp_path / str(number)) == []
    assert markers.read() == set()
    for command in PLAIN:  # they do start with a plain git
        run_plain_git(project, *command)
    started = {"remote_origin_uploadpack", "filter_evil_process", "worktree"}
    assert markers.read() >= started


PIPES = (
    *(".gitignore", "sub/.gitignore", ".gitattributes", "nested/.gitignore", ".worktreeinclude"),
    *(".git/HEAD", ".git/index", ".git/config", ".git/packed-refs", ".git/refs/heads/main"),
    *(".git/shallow", ".git/commondir", ".git/info/exclude", ".git/info/attributes"),
    *(".git/config.worktree", ".git/objects/info/alternates", ".git/objects/pack/pack-x.idx"),
    *("nested/.git", "nested/.git/HEAD", "nested/.git/index", "nested/.git/config"),
    *("nested/.git/packed-refs", "nested/.git/refs/heads/main", "nested/.git/commondir"),
    *("library/.git", ".git/modules/library/HEAD", ".git/modules/library/config"),
    *("bare.git/HEAD", "bare.git/config"),
)
IS_SHORT = not os.environ.get("MUDROOM_LONG")
LIMIT = 8.0
"""Seconds for all calls, of which the git that waits may take most."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("template"))


@pytest.mark.parametrize("path", PIPES)
def test_a_pipe_in_a_repository_is_not_waited_for(
    tmp_path: Path, template: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom._adapters.workspaces.isolated.git.LOOK_AFTER", 0.2)
    project = tmp_path / "project"
    shutil.copytree(template, project, symlinks=True)
    _replace_with_pipe(project / path)
    start = time.monotonic()
    errors = exercise(project, tmp_path, is_short=IS_SHORT)
    assert time.monotonic() - start < LIMIT
    assert errors or path != ".gitignore"
    for error in errors:
        assert f"{path}, which is a pipe or a device" in error
        assert "Remove it, or let the run share the folder." in error


def _replace_with_pipe(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)


def test_settings_that_name_a_pipe_are_not_read(tmp_path: Path, template: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(template, project, symlinks=True)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines = "".join(f"\t{name} = {pipe}\n" for name in ("excludesFile", "attributesFile"))
    for folder in list_git_folders(project):
        with (folder / "config").open("a") as file:
            file.write(f"[include]\n\tpath = {pipe}\n[core]\n{lines}")
            file.write(f"[diff]\n\torderFile = {pipe}\n[mailmap]\n\tfile = {pipe}\n")
    start = time.monotonic()
    assert exercise(project, tmp_path, is_short=IS_SHORT) == []
    assert time.monotonic() - start < LIMIT
