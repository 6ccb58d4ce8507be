"""Trees that travel to a machine that does not see the folder, as packs of git objects."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from mudroom._adapters.workspaces.isolated import node_workspaces
from mudroom._adapters.workspaces.isolated.git_store import GitStore
from mudroom._adapters.workspaces.isolated.node_workspaces import (
    NodeWorkspaces,
    ReceivedStore,
    describe_source,
    remove_old_sessions,
)
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.agents import WorkspaceSpec
from mudroom._core.ports import FilesLostError
from mudroom.errors import WorkspaceError

from .carriers import DirectCarrier
from .git_projects import make_repository, open_store, read_files, run_git, write_files

FILES: dict[str, str | bytes] = {
    ".gitignore": "*.log\nbuild/\n",
    "a.txt": "one\n",
    "src/b.py": "two\n",
    "src/deep/c.bin": bytes(range(256)),
}
COUNT = 10_000 if os.environ.get("MUDROOM_LONG") else 300


def open_both(folder: Path, source: Path) -> tuple[IsolatedWorkspaces, NodeWorkspaces]:
    """Return the workspaces of a session, and those of a machine without its folder."""
    home = str(folder / "home")
    session = IsolatedWorkspaces(str(folder / "session"), str(source), home)
    node = NodeWorkspaces(
        str(folder / "node"), str(source), str(folder / "other"), DirectCarrier(session)
    )
    return session, node


def get_carrier(node: NodeWorkspaces) -> DirectCarrier:
    assert isinstance(node._carrier, DirectCarrier)
    return node._carrier


def make_project(folder: Path) -> Path:
    """Make a repository with a changed, an untracked, an executable and an ignored file, a link."""
    source = make_repository(folder / "project", FILES)
    write_files(source, {"a.txt": "changed\n", "new.sh": "#!/bin/sh\n", "secret.log": "no\n"})
    (source / "new.sh").chmod(0o755)
    (source / "link").symlink_to("src/b.py")
    return source


def receive(folder: Path, store: GitStore) -> ReceivedStore:
    return ReceivedStore(str(folder / "git"), str(folder / "files"), describe_source(store))


def test_a_snapshot_has_the_files_that_git_does_not_ignore(tmp_path: Path) -> None:
    source = make_project(tmp_path)
    session, node = open_both(tmp_path, source)
    tree = session.store.store_source().tree
    stop = threading.Event()
    with node.open_snapshot(tree, stop, same_path=False) as folder:
        files = read_files(Path(folder.files.folder))
        assert files == {
            path: content for path, content in read_files(source).items() if path != "secret.log"
        }
        assert os.access(f"{folder.files.folder}/new.sh", os.X_OK)
        with node.open_snapshot(tree, stop, same_path=False) as second:
            assert second == folder
    assert len(get_carrier(node).fetched) == 1


def test_a_second_tree_brings_only_what_is_new(tmp_path: Path) -> None:
    source = make_repository(
        tmp_path / "project", {f"{n % 20}/{n}.txt": f"{n}\n" * 20 for n in range(COUNT)}
    )
    store = open_store(tmp_path / "store", source)
    first = store.store_source().tree
    other = receive(tmp_path / "other", store)
    whole = tmp_path / "first.pack"
    store.pack_trees([first], (), str(whole))
    other.unpack_trees([first], str(whole))
    write_files(source, {"0/0.txt": "changed\n"})
    second = store.store_source().tree
    rest = tmp_path / "second.pack"
    unknown = "0" * 40
    store.pack_trees([second], [first, unknown], str(rest))
    assert int.from_bytes(rest.read_bytes()[8:12], "big") == 3  # the top, one folder, one file
    other.unpack_trees([second], str(rest))
    assert other.list_entries(second) == store.list_entries(second)
    assert len(other.list_entries(first)) == COUNT


@pytest.mark.parametrize("count", [3, 300])
def test_a_damaged_pack_is_refused(count: int, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "project", {f"{n}.txt": f"{n}\n" for n in range(count)})
    store = open_store(tmp_path / "store", source)
    tree = store.store_source().tree
    other = receive(tmp_path / "other", store)
    path = tmp_path / "pack"
    store.pack_trees([tree], (), str(path))
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (b"", whole[:8], whole[:-1], whole[:middle], flipped, b"JUNK" + whole[4:]):
        path.write_bytes(damaged)
        with pytest.raises(WorkspaceError, match="is damaged"):
            other.unpack_trees([tree], str(path))
    path.write_bytes(whole)
    with pytest.raises(WorkspaceError, match="is damaged"):
        other.unpack_trees(["1" * 40], str(path))
    with pytest.raises(WorkspaceError, match="no id of a tree"):
        other.unpack_trees(["--all"], str(path))
    other.unpack_trees([tree], str(path))
    assert len(other.list_entries(tree)) == count


def test_a_pack_that_lacks_an_object_is_refused(tmp_path: Path) -> None:
    source = make_project(tmp_path)
    store = open_store(tmp_path / "store", source)
    first = store.store_source().tree
    write_files(source, {"a.txt": "again\n"})
    second = store.store_source().tree
    path = tmp_path / "pack"
    store.pack_trees([second], [first], str(path))
    with pytest.raises(WorkspaceError, match="is damaged"):
        receive(tmp_path / "other", store).unpack_trees([second], str(path))


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_work_of_another_machine_is_merged_like_local_work(
    object_format: str, tmp_path: Path
) -> None:
    source = tmp_path / "project"
    source.mkdir()
    run_git(source, "init", "--quiet", f"--object-format={object_format}")
    write_files(source, FILES)
    session, node = open_both(tmp_path, source)
    tree = session.store_present("").tree
    node.fetch(tree, threading.Event())
    folder = node.open("1.1.1", "", start=WorkspaceSpec(base=tree, tree=tree), same_path=False)
    place = Path(folder.files.folder)
    write_files(place, {"a.txt": "by the child\n", "x.log": "ignored\n", "build/y": "ignored\n"})
    (place / "src/b.py").unlink()
    work = node.store_work("1.1.1")
    node.mark_merged("1.1.1")
    assert work.files == ("a.txt", "src/b.py")
    assert session.find_stored("1.1.1") == work
    write_files(source, {"src/deep/c.bin": "by the user\n"})
    plan = session.plan_merge("", work)
    assert not plan.conflicts
    assert [(file.path, bool(file.after)) for file in plan.files] == [
        ("a.txt", True),
        ("src/b.py", False),
    ]
    assert session.store.read(plan.files[0].after) == b"by the child\n"
    assert get_carrier(node).merged == ["1.1.1"]


def test_ignore_rules_above_the_folder_hold_on_the_other_machine(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "project", {".gitignore": "*.tmp\n", "pkg/a.txt": "one\n"})
    (top / ".git/info/exclude").write_text("*.bak\n")
    session, node = open_both(tmp_path, top / "pkg")
    tree = session.store_present("").tree
    node.fetch(tree, threading.Event())
    folder = node.open("1.1.1", "", start=WorkspaceSpec(base=tree, tree=tree), same_path=False)
    write_files(Path(folder.files.folder), {"b.txt": "two\n", "c.tmp": "x", "d.bak": "x"})
    assert node.store_work("1.1.1").files == ("b.txt",)


def test_work_that_cannot_be_sent_is_kept_on_its_machine_and_said_to_be_lost(
    tmp_path: Path,
) -> None:
    session, node = open_both(tmp_path, make_project(tmp_path))
    tree = session.store_present("").tree
    node.fetch(tree, threading.Event())
    folder = node.open("1.1.1", "", start=WorkspaceSpec(base=tree, tree=tree), same_path=False)
    write_files(Path(folder.files.folder), {"b.txt": "two\n"})
    get_carrier(node).failure = OSError(28, "No space left on device")
    with pytest.raises(FilesLostError, match=r"run 1\.1\.1 could not be sent .*No space left"):
        node.store_work("1.1.1")
    assert session.find_stored("1.1.1") is None
    kept = node.find_stored("1.1.1")
    assert kept and kept.files == ("b.txt",)


def test_old_snapshots_are_removed_but_not_those_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_project(tmp_path)
    session, node = open_both(tmp_path, source)
    stop = threading.Event()

    def store(text: str) -> str:
        write_files(source, {"a.txt": text})
        return session.store_present("").tree

    monkeypatch.setattr(node_workspaces, "KEPT_SNAPSHOTS", 1)
    with node.open_snapshot(store("1"), stop, same_path=False) as used:
        for text in ("2", "3"):
            with node.open_snapshot(store(text), stop, same_path=False):
                pass
        names = {path.name for path in (tmp_path / "node/snapshots").iterdir()}
        assert names == {used.base, session.store_present("").tree}
    assert [known for _, known in get_carrier(node).fetched][-1] != []


def test_files_of_old_sessions_are_removed_from_a_machine(tmp_path: Path) -> None:
    for name in ("own", "old", "new"):
        (tmp_path / name).mkdir()
    for name in ("own", "old"):
        os.utime(tmp_path / name, (0, 0))
    remove_old_sessions(str(tmp_path), "own")
    remove_old_sessions(str(tmp_path / "missing"), "own")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "own"]
