"""The shared workspace: what it opens, writes and lists."""

from __future__ import annotations

import errno
import gc
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._platform.protected_names import UNFINISHED_PREFIX, is_protected
from mudroom.errors import WorkspaceError


@pytest.fixture(params=[True, False], ids=["openat2", "steps"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> SharedWorkspace:
    (tmp_path / "root").mkdir()
    (tmp_path / "spills").mkdir()
    (tmp_path / "spills" / "long").write_text("whole output")
    (tmp_path / "spills" / "transcripts").mkdir()
    (tmp_path / "spills" / "transcripts" / "1").write_text("conversation")
    return SharedWorkspace(
        str(tmp_path / "root"), spill_folder=str(tmp_path / "spills"), kernel=request.param
    )


def read_text(space: SharedWorkspace, path: str) -> str:
    with os.fdopen(space.open(path)) as file:
        return file.read()


def list_names(space: SharedWorkspace, path: str = ".", *, ignored: bool = False) -> list[str]:
    return [info.path for info in space.walk(path, ignored=ignored)]


def test_a_root_named_through_a_link_is_accepted_in_both_spellings(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    space = SharedWorkspace(str(tmp_path / "link"))
    assert space.root == str(tmp_path / "real")
    assert (
        space.locate(str(tmp_path / "link" / "x"))
        == space.locate(str(tmp_path / "real" / "x"))
        == "x"
    )


def test_a_missing_root_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="Name a folder that exists"):
        SharedWorkspace(str(tmp_path / "none"))


def test_a_new_file_has_the_mode_the_umask_gives(space: SharedWorkspace) -> None:
    before = os.umask(0o027)
    try:
        space.write("new", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE(space.stat("new").mode) == 0o640


def test_a_failed_write_leaves_nothing_behind(space: SharedWorkspace) -> None:
    os.mkdir(f"{space.root}/folder")
    with pytest.raises(WorkspaceError, match="is a folder"):
        space.write("folder", b"x")
    with pytest.raises(WorkspaceError):
        space.write("n" * 300, b"x")
    assert os.listdir(space.root) == ["folder"]


def test_spill_files_can_be_read_and_not_written(space: SharedWorkspace, tmp_path: Path) -> None:
    spill = str(tmp_path / "spills" / "long")
    assert space.locate(spill) == spill
    assert read_text(space, spill) == "whole output"
    assert space.stat(spill).size == 12
    assert list_names(space, spill) == [spill]
    with pytest.raises(WorkspaceError, match="may be read, not written"):
        space.write(spill, b"x")


def test_spill_files_are_found_by_their_exact_path_only(
    space: SharedWorkspace, tmp_path: Path
) -> None:
    spills = tmp_path / "spills"
    (tmp_path / "root" / "link").symlink_to(spills)
    for path in (spills, spills / "transcripts", spills / "transcripts" / "1", "link", "link/long"):
        with pytest.raises(WorkspaceError):
            list_names(space, str(path))
        with pytest.raises(WorkspaceError):
            read_text(space, str(path))


def test_a_missing_file_is_an_error_with_a_remedy(space: SharedWorkspace) -> None:
    with pytest.raises(WorkspaceError, match=r"nix\.py does not exist\. Check the spelling"):
        space.open("nix.py")


def test_walk_is_sorted_and_leaves_git_and_links_out(space: SharedWorkspace) -> None:
    for path in ("b/2", "b/1", "a.txt", ".hidden/x", "z"):
        space.write(path, b"")
    for path in (".git/config", "c/.git/config"):
        os.makedirs(os.path.dirname(f"{space.root}/{path}"))
        os.close(os.open(f"{space.root}/{path}", os.O_CREAT))
    os.symlink("/etc", f"{space.root}/etc")
    os.symlink("z", f"{space.root}/zz")
    os.symlink("..", f"{space.root}/b/up")
    assert list_names(space) == [".hidden/x", "a.txt", "b/1", "b/2", "z"]
    assert "b/up/z" not in list_names(space, ignored=True)
    assert list_names(space, "b") == ["b/1", "b/2"]
    assert list_names(space, "b/1") == ["b/1"]


IGNORES = {
    ".gitignore": (
        "*.log\n/build/\n!keep.log\nnode_modules\ndoc/*.txt\n**/cache/\n# no\n\\#odd\nspace\\ \n"
    ),
    "sub/.gitignore": "!*.log\nlocal\n/only_here\n",
    "sub/deep/.gitignore": "*\n!*.py\n!.gitignore\n",
    ".git/info/exclude": "excluded\n",
}
FILES = [
    *("a.log", "keep.log", "build/x", "src/build/x", "node_modules/m/index.js", "#odd", "main.py"),
    *("sub/node_modules/y", "doc/a.txt", "doc/b/a.txt", "x/cache/y", "excluded", "only_here"),
    *("sub/a.log", "sub/local", "sub/only_here", "sub/x/only_here", "sub/deep/x.py"),
    *("sub/deep/x.txt", "sub/deep/er/y.py"),
]


def make_repository_with_ignores(folder: Path) -> SharedWorkspace:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    space = SharedWorkspace(str(folder))
    for path in FILES:
        space.write(path, b"")
    for path, patterns in IGNORES.items():
        (folder / path).write_text(patterns)
    return space


def test_walk_lists_what_git_lists(tmp_path: Path) -> None:
    space = make_repository_with_ignores(tmp_path)
    options = ["-c", "core.excludesFile=/dev/null"]
    command = ["git", *options, "ls-files", "-z", "-co", "--exclude-standard"]
    result = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert sorted(list_names(space)) == sorted(filter(None, result.stdout.split("\0")))
    assert set(FILES) < set(list_names(space, ignored=True))
    for folder in ("sub", "sub/deep", "doc", "doc/b", "src"):
        expected = [name for name in list_names(space) if name.startswith(f"{folder}/")]
        assert list_names(space, folder) == expected
        below = SharedWorkspace(str(tmp_path / folder))
        assert [f"{folder}/{name}" for name in list_names(below)] == expected


@pytest.mark.parametrize("folder", ["build", "node_modules/m"])
def test_walk_of_an_ignored_root_lists_its_files(tmp_path: Path, folder: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/build/\nnode_modules\n*.js\n")
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "index.js").write_text("")
    assert list_names(SharedWorkspace(str(tmp_path / folder))) == ["index.js"]


def test_walk_below_a_repository_stops_at_its_top(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")
    (tmp_path / "top/sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tmp_path / "top")], check=True)
    (tmp_path / "top/sub/a").write_text("")
    assert list_names(SharedWorkspace(str(tmp_path / "top/sub"))) == ["a"]


def test_walk_skips_an_unreadable_folder(space: SharedWorkspace) -> None:
    space.write("a/x", b"")
    space.write("b", b"")
    os.chmod(f"{space.root}/a", 0)
    try:
        assert list_names(space)[-1] == "b"
    finally:
        os.chmod(f"{space.root}/a", 0o700)


def test_s3_only_unfinished_files_of_ended_processes_are_removed(space: SharedWorkspace) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    unfinished = f"{UNFINISHED_PREFIX}-"
    names = [f"{unfinished}{ended.pid}-1", f"{unfinished}{os.getpid()}-1", f"other-{ended.pid}-1"]
    for name in (*names, "a"):
        Path(space.root, name).write_text("x")
    space.remove_unfinished("a")
    assert sorted(os.listdir(space.root)) == sorted(["a", *names[1:]])
    assert not is_protected(names[0]), "a sandbox lets commands remove it"


def test_s3_a_sweep_keeps_the_temporary_file_of_a_running_write(space: SharedWorkspace) -> None:
    over = threading.Event()

    def sweep() -> None:
        while not over.is_set():
            space.remove_unfinished("other.txt")

    sweeping = threading.Thread(target=sweep)
    sweeping.start()
    try:
        for n in range(200):
            space.write("a.txt", b"%d" % n)
    finally:
        over.set()
        sweeping.join()
    assert read_text(space, "a.txt") == "199"


def test_walk_names_what_it_cannot_list(
    space: SharedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("a/x", "b/y", "c"):
        space.write(path, b"")
    skipped: list[str] = []
    real_open = os.open
    real_scandir = os.scandir

    def refuse_a(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    def refuse_b(folder: int) -> Any:
        if os.readlink(f"/proc/self/fd/{folder}").endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return real_scandir(folder)

    monkeypatch.setattr(os, "open", refuse_a)
    monkeypatch.setattr(os, "scandir", refuse_b)
    assert [info.path for info in space.walk(skipped=skipped)] == ["c"]
    assert skipped == ["a", "b"]


def test_walk_skips_folders_that_are_too_deep(space: SharedWorkspace) -> None:
    folder = space.root
    for _ in range(300):
        folder += "/d"
        os.mkdir(folder)
    space.write("e", b"")
    skipped: list[str] = []
    assert [info.path for info in space.walk(skipped=skipped)] == ["e"]
    assert len(skipped) == 1


def test_no_descriptor_is_left_open(space: SharedWorkspace) -> None:
    space.write("a/b", b"x")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        space.stat("a/b")
        read_text(space, "a/b")
        space.write("a/b", b"y")
        next(iter(space.walk()))
        for bad in ("../x", "none", "a", "a/b/c"):
            with pytest.raises(WorkspaceError):
                space.open(bad)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_descriptor_is_closed_with_the_workspace(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        SharedWorkspace(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
