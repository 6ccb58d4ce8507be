"""Files of a store that programs of siblings read at any time: whole at every moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.workspaces.git_projects import make_repository, open_store, write_files

from mudroom._adapters.workspaces.isolated.node_workspaces import ReceivedStore
from mudroom._core.ports import SourceFacts

PATTERNS = [f"/{name}" for name in range(40)]


def test_ignore_patterns_are_replaced_and_those_of_several_writers_are_all_kept(
    tmp_path: Path,
) -> None:
    source = make_repository(tmp_path / "project", {"a.txt": "a\n"})
    stores = [open_store(tmp_path / "s", source) for _ in range(4)]
    path = Path(stores[0].directory, "info/exclude")
    with path.open() as before:
        with ThreadPoolExecutor(4) as pool:
            for number, pattern in enumerate(PATTERNS):
                pool.submit(stores[number % 4].ignore_paths, [pattern])
        assert not {*PATTERNS} & {*before.read().splitlines()}, "it was written in place"
    lines = path.read_text().splitlines()
    assert [lines.count(pattern) for pattern in PATTERNS] == [1] * len(PATTERNS)
    inode = path.stat().st_ino
    stores[0].ignore_paths(PATTERNS)
    assert path.stat().st_ino == inode


def test_the_first_who_sees_a_store_sees_what_it_leaves_out(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "project", {"a.txt": "a\n"})
    write_files(source, {"state/x": "x", ".mudroom-unfinished-1-a": "half"})
    store = open_store(source / "state/s", source, [str(source / "state")])
    assert "/state" in Path(store.directory, "info/exclude").read_text().splitlines()
    assert list(store.list_entries(store.store_source().tree)) == ["a.txt"]


def test_an_ignore_file_on_another_machine_is_replaced_only_if_it_differs(tmp_path: Path) -> None:
    place, store = str(tmp_path / "files"), str(tmp_path / "store.git")
    path = tmp_path / "files/project/.gitignore"

    def open_received(content: bytes) -> int:
        facts = SourceFacts("sha1", "project", "pkg/", b"", {".gitignore": content})
        ReceivedStore(store, place, facts)
        assert path.read_bytes() == content
        return path.stat().st_ino

    first = open_received(b"*.tmp\n")
    assert open_received(b"*.tmp\n") == first
    with path.open() as opened:
        open_received(b"*.bak\n")
        assert opened.read() == "*.tmp\n"
