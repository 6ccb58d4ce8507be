"""Trees of a user's files: bytes as they are, and nothing written to the user's repository."""

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
    hash_folder,
    make_repository,
    open_store,
    read_files,
    run_git,
    write_files,
)

from mudroom._adapters.workspaces.isolated import git as git_module
from mudroom._adapters.workspaces.isolated.git_store import GitStore
from mudroom._adapters.workspaces.isolated.store import WorkingFiles
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._platform.scratch_dirs import remove_tree
from mudroom.errors import WorkspaceError


def test_a_tree_has_changed_untracked_and_deleted_files(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a.py": "a", "b.py": "b", ".gitignore": "*.log\n"})
    write_files(source, {"a.py": "changed", "new.py": "n", "debug.log": "x"})
    (source / "b.py").unlink()
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    files = read_files(Path(checkout.files.folder))
    assert files == {".gitignore": b"*.log\n", "a.py": b"changed", "new.py": b"n"}


def test_nothing_in_the_users_git_folder_changes(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a.py": "a"})
    write_files(source, {"a.py": "changed", "new.py": "n"})
    before = hash_folder(source)
    store = open_store(tmp_path, source)
    _, checkout = check_out_source(store, tmp_path, "one")
    write_files(Path(checkout.files.folder), {"a.py": "of the child"})
    run_git(Path(checkout.files.folder), "commit", "--quiet", "-a", "-m", "of the child")
    store.store_files(checkout.files, "one")
    assert hash_folder(source) == before


def test_a_file_changed_in_the_second_of_its_checkout_is_seen(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {f"{name}.py": "abc" for name in "abcdefgh"})
    store = open_store(tmp_path, source)
    for attempt in range(5):
        base, checkout = check_out_source(store, tmp_path, f"w{attempt}")
        with open(Path(checkout.files.folder, "d.py"), "r+") as file:
            file.write("xyz")
        tree = store.store_files(checkout.files, f"w{attempt}").tree
        assert [change.path for change in store.list_changes(base, tree)] == ["d.py"]


def test_a_folder_without_git_is_stored(tmp_path: Path) -> None:
    source = tmp_path / "plain"
    write_files(source, {"a.txt": "a", "deep/b.txt": "b", ".gitignore": "*.o\n", "x.o": "o"})
    base, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    assert sorted(read_files(Path(checkout.files.folder))) == [".gitignore", "a.txt", "deep/b.txt"]
    assert base
    assert not Path(checkout.files.folder, ".git").exists()


def test_an_empty_folder_is_stored(tmp_path: Path) -> None:
    source = tmp_path / "empty"
    source.mkdir()
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    assert read_files(Path(checkout.files.folder)) == {}


def test_a_repository_without_a_commit_is_stored(tmp_path: Path) -> None:
    source = tmp_path / "app"
    source.mkdir()
    run_git(source, "init", "--quiet")
    write_files(source, {"a.txt": "a"})
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    assert read_files(Path(checkout.files.folder)) == {"a.txt": b"a"}


def test_bytes_are_not_converted(tmp_path: Path) -> None:
    attributes = (
        "* text=auto eol=crlf\n*.py ident\n*.bin filter=none\n"
        "*.u16 working-tree-encoding=UTF-16LE\n"
    )
    files: dict[str, str | bytes] = {
        ".gitattributes": attributes,
        "unix.txt": b"one\ntwo\n",
        "dos.txt": b"one\r\ntwo\r\n",
        "id.py": b"$Id$\n",
        "a.bin": b"\0\r\n\xff",
        "wide.u16": "wide".encode("utf-16-le"),
    }
    source = make_repository(tmp_path / "app", files)
    write_files(source, files)
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    assert read_files(Path(checkout.files.folder)) == read_files(source)


def test_settings_of_a_repository_start_no_program(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a.py": "a", ".gitattributes": "* filter=evil\n"})
    mark = tmp_path / "mark"
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "core.sshCommand"):
        run_git(source, "config", key, str(program))
    hook = source / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(program, hook)
    mark.unlink(missing_ok=True)
    write_files(source, {"a.py": "changed"})
    store = open_store(tmp_path, source)
    _, checkout = check_out_source(store, tmp_path, "one")
    write_files(Path(checkout.files.folder), {"a.py": "of the child"})
    store.store_files(checkout.files, "one")
    assert not mark.exists()


def test_links_and_modes_are_kept(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"run.sh": "#!/bin/sh\n", "a.txt": "a"})
    (source / "run.sh").chmod(0o755)
    os.symlink("a.txt", source / "inside")
    os.symlink("/etc/passwd", source / "outside")
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    folder = Path(checkout.files.folder)
    assert os.access(folder / "run.sh", os.X_OK)
    assert not os.access(folder / "a.txt", os.X_OK)
    assert os.readlink(folder / "inside") == "a.txt"
    assert os.readlink(folder / "outside") == "/etc/passwd"


def test_tracked_files_that_git_ignores_are_kept(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a.py": "a"})
    write_files(source, {"dist/app.js": "built", ".gitignore": "dist/\n"})
    run_git(source, "add", "--force", "dist/app.js")
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    assert sorted(read_files(Path(checkout.files.folder))) == [".gitignore", "a.py", "dist/app.js"]


def test_files_of_a_subfolder_follow_the_ignore_rules_above(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "app", {".gitignore": "*.pyc\n", "sub/a.py": "a", "b.py": "b"})
    write_files(top, {"sub/a.pyc": "compiled"})
    store = open_store(tmp_path, top / "sub")
    base, checkout = check_out_source(store, tmp_path, "one")
    folder = Path(checkout.files.folder)
    assert read_files(folder) == {"a.py": b"a"}
    write_files(folder, {"new.pyc": "compiled", "new.py": "n"})
    tree = store.store_files(checkout.files, "one").tree
    assert [change.path for change in store.list_changes(base, tree)] == ["new.py"]


def test_files_of_submodules_and_nested_repositories_are_stored(tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library", {"lib.c": "int x;\n"})
    source = make_repository(tmp_path / "app", {"main.c": "int main;\n"})
    run_git(source, "submodule", "--quiet", "add", str(library), "vendor/library")
    run_git(source, "commit", "--quiet", "-m", "submodule")
    write_files(source, {"vendor/library/lib.c": "int dirty;\n"})
    make_repository(source / "nested", {"n.txt": "n"})
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    files = read_files(Path(checkout.files.folder))
    assert files["vendor/library/lib.c"] == b"int dirty;\n"
    assert files["nested/n.txt"] == b"n"
    assert files["main.c"] == b"int main;\n"


def test_a_file_becomes_a_folder_and_a_folder_a_file(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a": "a", "b/c": "c"})
    store = open_store(tmp_path, source)
    base = store.store_source().tree
    (source / "a").unlink()
    shutil.rmtree(source / "b")
    write_files(source, {"a/x": "x", "b": "b"})
    tree = store.store_source().tree
    paths = [(change.path, change.status) for change in store.list_changes(base, tree)]
    assert paths == [("a", "deleted"), ("a/x", "added"), ("b", "added"), ("b/c", "deleted")]


def test_a_linked_worktree_borrows_the_objects_of_its_repository(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", {"a.py": "a"})
    run_git(main, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    store = open_store(tmp_path, tmp_path / "linked")
    _, checkout = check_out_source(store, tmp_path, "one")
    assert "first" in run_git(Path(checkout.files.folder), "log", "--oneline")


def test_a_pointer_to_a_repository_that_does_not_point_back_is_not_followed(tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other", {"secret": "s"})
    source = tmp_path / "app"
    write_files(source, {"a.py": "a", ".git": f"gitdir: {other}/.git\n"})
    store = open_store(tmp_path, source)
    assert store.repository is None
    assert str(other) not in Path(store.directory, "objects/info").joinpath("alternates").as_posix()
    _, checkout = check_out_source(store, tmp_path, "one")
    assert read_files(Path(checkout.files.folder)) == {"a.py": b"a"}


def test_sparse_and_shallow_repositories_are_stored_as_they_are(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", {"in/a": "a", "out/b": "b"})
    write_files(main, {"in/a": "2"})
    run_git(main, "commit", "--quiet", "-am", "second")
    run_git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{main}", "app")
    source = tmp_path / "app"
    run_git(source, "sparse-checkout", "set", "in")
    _, checkout = check_out_source(open_store(tmp_path, source), tmp_path, "one")
    assert read_files(Path(checkout.files.folder)) == {"in/a": b"2"}


def test_names_with_any_bytes_are_kept(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "app", {"a": "a"})
    names = [b"new\nline", b"caf\xe9", "数据".encode(), b"-dash", b":(top)magic", b"*star", b'"q"']
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(source), name))).write_bytes(name)
    store = open_store(tmp_path, source)
    base, checkout = check_out_source(store, tmp_path, "one")
    assert read_files(Path(checkout.files.folder)) == read_files(source)
    for name in names:
        path = os.path.join(os.fsencode(checkout.files.folder), name)
        Path(os.fsdecode(path)).write_bytes(b"changed")
    tree = store.store_files(checkout.files, "one").tree
    changed = {os.fsencode(change.path) for change in store.list_changes(base, tree)}
    assert changed == set(names)


def test_large_and_unreadable_files_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom._adapters.workspaces.isolated.git_store.MAX_FILE_BYTES", 1 << 20)
    source = make_repository(tmp_path / "app", {"a": "a"})
    write_files(source, {"big [1].bin": b"x" * (1 << 20) + b"x"})
    stored = open_store(tmp_path, source).store_source()
    assert stored.missing == ("big [1].bin (larger than 1 MiB)",)


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
    repository = make_repository(tmp_path / "app", {"a.py": "a", "sub/a.py": "a"})
    store = open_store(tmp_path, repository / folder)
    tree, checkout = check_out_source(store, tmp_path, "one")
    if not is_first_look:
        write_files(Path(checkout.files.folder), {"b.py": "b"})
        tree = store.store_files(checkout.files, "one").tree
    UNSTORABLE[reason](Path(checkout.files.folder, "a.py"))
    stored = store.store_files(checkout.files, "one")
    assert stored.missing == (f"a.py ({reason})",)
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
