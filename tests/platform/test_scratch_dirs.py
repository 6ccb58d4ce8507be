"""Scratch directories and their clean-up: only abandoned ones are removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom._platform.orphan_cleanup import remove_orphans
from mudroom._platform.scratch_dirs import ScratchDir

_OWNER = """
import os, sys, time
from mudroom._platform.scratch_dirs import ScratchDir
folder = ScratchDir(sys.argv[1])
os.makedirs(f"{folder.path}/a/b")
open(f"{folder.path}/a/b/c", "w").close()
print(folder.path, flush=True)
time.sleep(60)
"""


def make_abandoned(base: Path) -> Path:
    """Return a scratch directory whose owner was killed."""
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(base)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout
        path = Path(owner.stdout.readline().strip())
        owner.kill()
    assert (path / "a/b/c").exists()
    return path


def test_a_scratch_dir_is_private_and_removed_after_its_block(tmp_path: Path) -> None:
    with ScratchDir(str(tmp_path)) as path:
        assert Path(path).stat().st_mode & 0o777 == 0o700
        (Path(path) / "file").touch()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_a_clean_up_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir
    made: list[str] = []

    def make_and_clean_up(path: str, mode: int) -> None:
        make(path, mode)
        made.append(path)
        if len(made) == 1:
            remove_orphans(str(tmp_path))

    monkeypatch.setattr(os, "mkdir", make_and_clean_up)
    with ScratchDir(str(tmp_path)) as path:
        assert [path] == made[1:] == [str(one) for one in tmp_path.iterdir()]


def test_any_number_of_abandoned_folders_is_removed(tmp_path: Path) -> None:
    path = make_abandoned(tmp_path)
    for number in range(150):
        shutil.copytree(path, tmp_path / f"mudroom-1-{number:012x}")
    with ScratchDir(str(tmp_path)) as living:
        remove_orphans(str(tmp_path))
        assert [str(each) for each in tmp_path.iterdir()] == [living]


def test_a_folder_with_an_owner_stays(tmp_path: Path) -> None:
    with ScratchDir(str(tmp_path)) as path:
        remove_orphans(str(tmp_path))
        assert os.path.isdir(path)
        owner = subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        with owner:
            assert owner.stdout
            other = owner.stdout.readline().strip()
            remove_orphans(str(tmp_path))
            assert os.path.exists(f"{other}/a/b/c")
            owner.kill()


def test_folders_with_other_names_stay(tmp_path: Path) -> None:
    for name in (
        "1-0123456789a",
        "replay-x",
        "x-0123456789ab",
        "1-0123456789AB",
        "1-0123456789ab0",
    ):
        (tmp_path / f"mudroom-{name}").mkdir()
    (tmp_path / "mudroom-1-0123456789ab").touch()
    remove_orphans(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 6


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Neither a link in place of a folder, nor one inside it."""
    base, outside = tmp_path / "base", tmp_path / "outside"
    base.mkdir()
    outside.mkdir()
    (outside / "file").touch()
    (base / "mudroom-1-0123456789ab").symlink_to(outside)
    path = make_abandoned(base)
    (path / "out").symlink_to(outside)
    (path / "a/file").symlink_to(outside / "file")
    remove_orphans(str(base))
    assert [one.name for one in base.iterdir()] == ["mudroom-1-0123456789ab"]
    assert (outside / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root only")
def test_folders_of_other_users_stay(tmp_path: Path) -> None:
    path = make_abandoned(tmp_path)
    os.chown(path, 54_321, 54_321)
    remove_orphans(str(tmp_path))
    assert (path / "a/b/c").exists()


def test_folders_without_permissions_are_removed(tmp_path: Path) -> None:
    """Run as a user without root's rights."""
    base = tmp_path / "base"
    base.mkdir()
    path = make_abandoned(base)
    (path / "a/b").chmod(0o500)
    (path / "a/none").mkdir(0o000)
    user = 54_321 if os.geteuid() == 0 else os.geteuid()
    if os.geteuid() == 0:
        for one in (base, path, path / "a", path / "a/b", path / "a/b/c", path / "a/none"):
            os.chown(one, user, user)
    pid = os.fork()
    if pid == 0:
        os.chdir(base)
        os.setresuid(user, user, user)
        remove_orphans(".")
        os._exit(0)
    os.waitpid(pid, 0)
    assert not list(base.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="only where there is /proc")
def test_only_processes_that_name_an_abandoned_folder_are_killed(tmp_path: Path) -> None:
    with ScratchDir(str(tmp_path)) as living:
        dead = make_abandoned(tmp_path)
        values = [f"{dead}/home", f"{living}/home", f"{dead}0/home", f"x{dead}/home"]
        started = [subprocess.Popen(["sleep", "73.4567"], env={"HOME": value}) for value in values]
        try:
            remove_orphans(str(tmp_path))
            assert started[0].wait(60) == -signal.SIGKILL
            assert [one.poll() for one in started[1:]] == [None, None, None]
        finally:
            for one in started:
                one.kill()
                one.wait()


def test_a_folder_deeper_than_a_process_may_open_is_removed(tmp_path: Path) -> None:
    """Commands nest folders as deep as they like; some have no rights for their owner."""
    scratch = ScratchDir(str(tmp_path))
    parent = os.open(scratch.path, os.O_RDONLY)
    for number in range(3_000):
        os.mkdir("d", dir_fd=parent)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
        inner = os.open("d", os.O_RDONLY, dir_fd=parent)
        if number % 100 == 0:
            os.fchmod(inner, 0o300)
        os.close(parent)
        parent = inner
    os.symlink(tmp_path, "link", dir_fd=parent)
    os.close(parent)
    (tmp_path / "kept").write_text("")
    scratch.remove()
    assert os.listdir(tmp_path) == ["kept"]
