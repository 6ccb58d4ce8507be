"""Trees of files: what is seen, left out and named; `test_isolated_matrix.py` has the rest."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from tests.long_form import count_examples
from tests.workspaces.git_projects import (
    check_out_source,
    make_repository,
    open_store,
    read_files,
    write_files,
)

from mudroom._adapters.workspaces.isolated import git as git_module
from mudroom._adapters.workspaces.isolated.git_store import GitStore
from mudroom._adapters.workspaces.isolated.store import WorkingFiles
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._platform.scratch_dirs import remove_tree
from mudroom.errors import WorkspaceError


def test_a_file_changed_in_the_second_of_its_checkout_is_seen(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {f"{name}.py": "abc" for name in "abcdefgh"})
    store = open_store(tmp_path, source)
    for attempt in range(5):
        base, checkout = check_out_source(store, tmp_path, f"w{attempt}")
        with open(Path(checkout.files.folder, "d.py"), "r+") as file:
            file.write("xyz")
        tree = store.store_files(checkout.files, f"w{attempt}").tree
        assert [change.path for change in store.list_changes(base, tree)] == ["d.py"]


def test_a_pointer_to_a_repository_that_does_not_point_back_is_not_followed(tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other", {"secret": "s"})
    source = tmp_path / "app"
    write_files(source, {"a.py": "a", ".git": f"gitdir: {other}/.git\n"})
    store = open_store(tmp_path, source)
    assert store.repository is None
    assert str(other) not in Path(store.directory, "objects/info").joinpath("alternates").as_posix()
    _, checkout = check_out_source(store, tmp_path, "one")
    assert read_files(Path(checkout.files.folder)) == {"a.py": b"a"}


def make_unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    path.chmod(0)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


UNSTORABLE: dict[str, Callable[[Path], object]] = {
    "larger than 0 MiB": lambda path: path.write_text("large" * 30),
    "is no regular file": make_pipe,
    "cannot be read": make_unreadable,
}


@pytest.mark.parametrize("is_first_look", [True, False])
@pytest.mark.parametrize("folder", ["", "sub"])
@pytest.mark.parametrize("reason", UNSTORABLE)
def test_a_file_that_cannot_be_stored_is_not_one_that_was_removed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    folder: str,
    is_first_look: bool,
) -> None:
    monkeypatch.setattr("mudroom._adapters.workspaces.isolated.git_store.MAX_FILE_BYTES", 100)
    repository = make_repository(tmp_path / "app", {"a [1].py": "a", "sub/a [1].py": "a"})
    store = open_store(tmp_path, repository / folder)
    tree, checkout = check_out_source(store, tmp_path, "one")
    if not is_first_look:
        write_files(Path(checkout.files.folder), {"b.py": "b"})
        tree = store.store_files(checkout.files, "one").tree
    UNSTORABLE[reason](Path(checkout.files.folder, "a [1].py"))
    stored = store.store_files(checkout.files, "one")
    assert stored.missing == (f"a [1].py ({reason})",)
    assert store.list_changes(tree, stored.tree) == []


def make_deep(folder: Path, levels: int) -> None:
    """Nest folders deeper than a path can name, with a file in each."""
    parent = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=parent)
        os.close(os.open("file.txt", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
        inner = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = inner
    os.close(parent)


@pytest.fixture
def deep_folder(tmp_path: Path) -> Generator[Path]:
    """A folder that is removed with what is nested in it; pytest cannot."""
    folder = tmp_path / "deep"
    folder.mkdir()
    yield folder
    remove_tree(folder)


@pytest.mark.parametrize("place", ["source", "new", "ignored"])
def test_folders_that_lie_too_deep_are_left_out_and_named(deep_folder: Path, place: str) -> None:
    levels = count_examples(1_200, 2_500)  # recursion fails at the first, paths at the second
    project = make_repository(deep_folder / "project", {"a": "a", ".gitignore": "ignored/\n"})
    directory = deep_folder / "store"
    workspaces = IsolatedWorkspaces(str(directory), str(project), str(deep_folder / "home"))
    if place == "source":
        make_deep(project, levels)
        missing = workspaces.store_present("").missing
    else:
        child = Path(workspaces.open("1.1.1", "", same_path=False).files.folder)
        (child / place).mkdir()
        make_deep(child / place, levels)
        work = workspaces.store_work("1.1.1")
        missing = work.missing
        assert (work.ignored is not None) is (place == "ignored")
        assert workspaces.open("1.1.2", "", same_path=False), "its disk space can be measured"
    named = [note.rpartition(" (")[2] for note in missing]
    assert named == ["more than 200 folders deep)"] * (place != "ignored")


def test_git_that_is_missing_or_old_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git_module.explain_unusable_git() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "git"
    for version, is_old in (("2.37.9", True), ("2.38.0", False), ("2.38", False), ("3.0", False)):
        program.write_text(f"#!/bin/sh\necho git version {version}\n")
        program.chmod(0o755)
        expected = f"git {version} is older than 2.38" if is_old else None
        assert git_module.explain_unusable_git() == expected
    program.unlink()
    assert git_module.explain_unusable_git() == "git is not installed"


def test_a_lock_of_a_killed_git_is_removed(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a.py": "a"})
    store = open_store(tmp_path, source)
    store.store_source()
    lock = Path(f"{store.find_index('source')}.lock")
    for moment in (0, 2**33):  # in 1970, and in the future
        lock.touch()
        os.utime(lock, (moment, moment))
        write_files(source, {"new.py": str(moment)})
        assert "new.py" in store.list_entries(store.store_source().tree)
        assert not lock.exists()


def test_a_disk_without_room_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_repository(tmp_path / "project", {"a": "one\n"})
    (project / "b").write_text("two\n")
    store = GitStore(str(tmp_path / "store.git"), str(project))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    module = "mudroom._adapters.workspaces.isolated.git_store"
    monkeypatch.setattr(f"{module}.tempfile.TemporaryFile", refuse)
    with pytest.raises(WorkspaceError, match="No space left on device"):
        store.store_files(WorkingFiles(str(project)), "index")


def test_a_link_in_place_of_the_folder_of_a_run_is_not_followed(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project", {"sub/a": "one\n"})
    write_files(tmp_path / "outside", {"sub/secret": "s"})
    for number, top in enumerate((project, project / "sub")):
        home = tmp_path / f"home-{number}"
        workspaces = IsolatedWorkspaces(str(home / "isolated/s"), str(top), str(home))
        files = workspaces.open("1.1.1", "", same_path=False).files
        shutil.rmtree(files.top)
        os.symlink(tmp_path / "outside", files.top)
        with pytest.raises(WorkspaceError, match="its files cannot be read: Not a directory"):
            workspaces.store_work("1.1.1")
        assert workspaces.find_stored("1.1.1") is None
