"""Trees of files without the program git: each content is a file of the store.

The objects have the ids of git, but not its form on the disk. Ignore rules are those of git.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from ..._core.json_values import get_decoder
from ..._platform.binary_files import is_binary
from ..._platform.open_beneath import open_real_path, open_step_by_step
from ...errors import WorkspaceError
from .._ignore import IgnoreRules
from .._listing import FOLDER_FLAGS, MAX_DEPTH, read_patterns, read_rules_above
from .packs import NO_PACKS, NO_PACKS_REMEDY
from .repository import find_repository
from .store import MAX_FILE_BYTES, TreeStore, add_patterns, check_size, write_durably
from .trees import (
    FILE_TYPE,
    FOLDER,
    LINK,
    REGULAR,
    FileChange,
    StoredFiles,
    TreeEntry,
    WorkingFiles,
    compare_entries,
)

MAX_TOTAL_BYTES = 500 << 20
"""Maximum bytes of a folder that is stored."""

_RECENT_NS = 20_000_000
"""A file that changed so shortly before its facts were read may have changed again since."""

_BLOCK = 1 << 20


class _Facts(Struct, array_like=True, frozen=True):
    """Facts about a stored file: an equal file is not read again."""

    size: int
    mtime: int
    ctime: int
    inode: int
    entry: TreeEntry


class PlainStore(TreeStore):
    """A store of plain files. See TreeStore."""

    def __init__(self, directory: str, source: str, excluded: Iterable[str] = ()) -> None:
        super().__init__(directory, source, excluded)

    def _create(self, patterns: Sequence[str]) -> None:
        for name in ("objects", "indexes", "info"):
            os.makedirs(os.path.join(self.directory, name), mode=0o700, exist_ok=True)
        repository = find_repository(self.source)
        is_top = repository and repository.top == self.source
        excludes = repository.read_excludes() if repository and is_top else b""
        Path(self.directory, "info/exclude").write_bytes(add_patterns(excludes, patterns))
        Path(self.directory, "HEAD").write_text("plain\n")

    def _store_files(self, files: WorkingFiles, index_name: str) -> StoredFiles:
        index = Path(self.find_index(index_name))
        known = _read_index(index)
        moment = time.time_ns() - _RECENT_NS
        too_deep: list[str] = []
        present = dict(self._walk(files.folder, too_deep=too_deep))
        missing = [f"{path} (more than {MAX_DEPTH} folders deep)" for path in too_deep]
        missing += [
            f"{path} (larger than {MAX_FILE_BYTES >> 20} MiB)"
            for path, status in present.items()
            if status.st_size > MAX_FILE_BYTES
        ]
        sizes = [status.st_size for status in present.values() if status.st_size <= MAX_FILE_BYTES]
        max_bytes = min(self.max_bytes, MAX_TOTAL_BYTES)
        check_size(files.folder, len(present), sum(sizes), max_bytes)
        top = os.open(files.folder, FOLDER_FLAGS | os.O_CLOEXEC)
        try:
            entries, facts = self._store_present(top, present, known, missing)
        finally:
            os.close(top)
        facts = {key: fact for key, fact in facts.items() if fact.ctime < moment}
        index.write_bytes(msgspec.json.encode(facts))
        return StoredFiles(self.write_tree(entries), tuple(missing))

    def _store_present(
        self,
        top: int,
        present: dict[str, os.stat_result],
        known: dict[str, _Facts],
        missing: list[str],
    ) -> tuple[dict[str, TreeEntry], dict[str, _Facts]]:
        """Store files below an open folder; `missing` gets those that cannot be read."""
        entries: dict[str, TreeEntry] = {}
        facts: dict[str, _Facts] = {}
        for path, status in present.items():
            if status.st_size > MAX_FILE_BYTES:
                continue
            key = _to_key(path)
            try:
                entries[path] = self._store_file(top, path, status, known.get(key))
            except FileNotFoundError:
                continue  # it was removed
            except OSError:
                missing.append(f"{path} (cannot be read)")
                continue
            facts[key] = _make_facts(status, entries[path])
        return entries, facts

    def _store_file(
        self, top: int, path: str, status: os.stat_result, known: _Facts | None
    ) -> TreeEntry:
        """Store the content of a file or a link below an open folder, if it is new."""
        if stat.S_ISLNK(status.st_mode):
            return TreeEntry(LINK, self.write(_read_link(top, path)))
        if known and known == _make_facts(status, known.entry):
            return known.entry
        mode = REGULAR | (0o755 if status.st_mode & 0o100 else 0o644)
        descriptor, copy = tempfile.mkstemp(dir=os.path.join(self.directory, "objects"))
        with os.fdopen(descriptor, "w+b") as target:
            try:
                opened = open_step_by_step(top, path, os.O_RDONLY | os.O_NONBLOCK)
                with open(opened, "rb") as file:
                    if not stat.S_ISREG(os.fstat(opened).st_mode):
                        raise OSError(errno.EINVAL, "not a regular file", path)
                    size = _copy(file, target)
                os.fsync(descriptor)
            except OSError:
                os.unlink(copy)
                raise
            digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
            target.seek(0)
            while block := target.read(_BLOCK):
                digest.update(block)
        object_id = digest.hexdigest()
        os.makedirs(os.path.dirname(self._find_object(object_id)), exist_ok=True)
        os.replace(copy, self._find_object(object_id))
        return TreeEntry(mode, object_id)

    def write_files(self, tree: str, files: WorkingFiles, index_name: str) -> None:
        """Write the files of a tree into a folder, and the facts about them into an index."""
        for path, entry in self.list_entries(tree).items():
            target = os.path.join(files.folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if entry.mode & FILE_TYPE == LINK:
                os.symlink(os.fsdecode(self.read(entry.id)), target)
                continue
            descriptor = os.open(
                target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, entry.mode & 0o777
            )
            with (
                open(self._find_object(entry.id), "rb") as file,
                os.fdopen(descriptor, "wb") as copy,
            ):
                _copy(file, copy)
        Path(self.find_index(index_name)).unlink(missing_ok=True)

    def list_entries(self, tree: str, paths: Sequence[str] = ()) -> dict[str, TreeEntry]:
        """Return the files of a tree by path; only those with some paths, if any are given."""
        entries = dict(self._walk_tree(tree, ""))
        return {path: entries[path] for path in paths if path in entries} if paths else entries

    def _walk_tree(self, tree: str, prefix: str) -> Iterator[tuple[str, TreeEntry]]:
        data = self.read(tree)
        start = 0
        while start < len(data):
            end = data.index(b"\0", start)
            mode, _, name = data[start:end].partition(b" ")
            start = end + 21
            entry = TreeEntry(int(mode, 8), data[end + 1 : start].hex())
            path = prefix + os.fsdecode(name)
            if entry.mode == FOLDER:
                yield from self._walk_tree(entry.id, f"{path}/")
            else:
                yield path, entry

    def list_changes(self, before: str, after: str) -> list[FileChange]:
        """Return the differences between two trees, by path."""
        return compare_entries(self.list_entries(before), self.list_entries(after))

    def measure_tree(self, tree: str) -> int:
        """Return the bytes of the files of a tree."""
        entries = self.list_entries(tree).values()
        return sum(os.stat(self._find_object(entry.id)).st_size for entry in entries)

    def read(self, object_id: str) -> bytes:
        """Return the content of a file, b"" for the id ""."""
        return Path(self._find_object(object_id)).read_bytes() if object_id else b""

    def read_difference(self, before: str, after: str) -> str:
        """Return the differences between two trees in the unified format."""
        return "".join(
            line
            for change in self.list_changes(before, after)
            for line in _compare_texts(
                f"a/{change.path}" if change.before else os.devnull,
                self.read(change.before),
                f"b/{change.path}" if change.after else os.devnull,
                self.read(change.after),
            )
        )

    def pack_trees(self, trees: Sequence[str], known: Sequence[str], path: str) -> None:
        """Refuse: the form of the file is that of git."""
        raise WorkspaceError(NO_PACKS, where=self.source, remedy=NO_PACKS_REMEDY)

    def unpack_trees(self, trees: Sequence[str], path: str) -> None:
        """Refuse: the form of the file is that of git."""
        raise WorkspaceError(NO_PACKS, where=self.source, remedy=NO_PACKS_REMEDY)

    def has_tree(self, tree: str) -> bool:
        """Refuse: no tree comes from another store."""
        raise WorkspaceError(NO_PACKS, where=self.source, remedy=NO_PACKS_REMEDY)

    def list_ignored_folders(self) -> list[str]:
        """Return the folders of the source that git ignores, without those inside them."""
        folders: list[str] = []
        for _ in self._walk(self.source, ignored_folders=folders):
            pass
        return folders

    def list_included(self, patterns: str) -> list[str]:
        """Return the files of the source that git ignores and a file with patterns names."""
        named = IgnoreRules().extend("", Path(patterns).read_bytes())
        kept = dict(self._walk(self.source))
        everything = _walk_folder(self.source, None, [], [])
        return [path for path, _ in everything if path not in kept and _names(named, path)]

    def _walk(
        self,
        folder: str,
        ignored_folders: list[str] | None = None,
        too_deep: list[str] | None = None,
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files and links of a folder that git does not ignore."""
        exclude = Path(self.directory, "info/exclude")
        patterns = exclude.read_bytes() if exclude.exists() else b""
        rules = read_rules_above(self.source).extend("", patterns)
        ignored = [] if ignored_folders is None else ignored_folders
        yield from _walk_folder(folder, rules, ignored, [] if too_deep is None else too_deep)

    def _write_object(self, kind: str, data: bytes) -> str:
        """Store an object and return its id."""
        object_id = self.find_id(data, kind)
        path = Path(self._find_object(object_id))
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_durably(path, data)
        return object_id

    def _find_object(self, object_id: str) -> str:
        return os.path.join(self.directory, "objects", object_id[:2], object_id[2:])


def _walk_folder(
    top: str, rules: IgnoreRules | None, ignored: list[str], too_deep: list[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and links.

    Arguments:
        rules: None for no rules. ignored, too_deep: get the folders that are left out.
    """
    levels = [_list_folder(top, "", rules)]
    while levels:
        found = next(levels[-1], None)
        if found is None:
            levels.pop()
            continue
        path, status, inner_rules = found
        if not stat.S_ISDIR(status.st_mode):
            yield path, status
        elif inner_rules is not None and inner_rules(f"{path}/"):
            ignored.append(path)
        elif len(levels) > MAX_DEPTH:
            too_deep.append(path)
        else:
            levels.append(_list_folder(top, path, inner_rules))


def _list_folder(
    top: str, folder: str, rules: IgnoreRules | None
) -> Iterator[tuple[str, os.stat_result, IgnoreRules | None]]:
    """Yield what a folder holds that no rule leaves out, with the rules that apply in it.

    The folder is opened beneath `top` without following links: another process may exchange it.
    """
    try:
        descriptor = open_real_path(os.path.join(top, folder), top, FOLDER_FLAGS)
    except OSError:
        return
    try:
        if rules is not None:
            rules = rules.extend(folder, read_patterns(descriptor, ".gitignore"))
        with os.scandir(descriptor) as scan:
            entries = sorted(
                (entry.name, entry.stat(follow_symlinks=False))
                for entry in scan
                if entry.name != ".git"
            )
    except OSError:
        return
    finally:
        os.close(descriptor)
    for name, status in entries:
        path = f"{folder}/{name}" if folder else name
        is_content = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        if stat.S_ISDIR(status.st_mode) or (is_content and (rules is None or not rules(path))):
            yield path, status, rules


def _read_link(top: int, path: str) -> bytes:
    """Return the target of a link below an open folder. Raises OSError if it is no link now."""
    folder = open_step_by_step(top, os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        return os.fsencode(os.readlink(os.path.basename(path), dir_fd=folder))
    finally:
        os.close(folder)


def _names(rules: IgnoreRules, path: str) -> bool:
    """Return whether patterns name a file or a folder above it."""
    parts = path.split("/")
    folders = ("/".join(parts[:count]) + "/" for count in range(1, len(parts)))
    return rules(path) or any(map(rules, folders))


def _compare_texts(old_name: str, old: bytes, new_name: str, new: bytes) -> Iterator[str]:
    """Yield the lines of a unified difference."""
    if is_binary(old, new):
        yield f"Binary files {old_name} and {new_name} differ\n"
        return
    old_lines, new_lines = (
        text.decode("utf-8", "backslashreplace").splitlines(keepends=True) for text in (old, new)
    )
    for line in difflib.unified_diff(old_lines, new_lines, old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _read_index(path: Path) -> dict[str, _Facts]:
    try:
        return get_decoder(dict[str, _Facts]).decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _to_key(path: str) -> str:
    """Return a path as valid text, which JSON needs."""
    return os.fsencode(path).decode("latin-1")


def _make_facts(status: os.stat_result, entry: TreeEntry) -> _Facts:
    return _Facts(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, entry)


def _copy(source: BinaryIO, target: BinaryIO) -> int:
    """Copy a file, without its blocks where the file system can share them. Return its size."""
    try:
        while os.copy_file_range(source.fileno(), target.fileno(), _BLOCK):
            pass
    except (AttributeError, OSError):  # this system cannot
        shutil.copyfileobj(source, target)
        target.flush()
    return os.fstat(target.fileno()).st_size
