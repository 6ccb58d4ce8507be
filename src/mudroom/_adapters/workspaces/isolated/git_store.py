"""Trees of files as git objects.

The store borrows the objects of the user's repository and never writes to it. git opens each file
by its path, so a command that swaps a folder for a link at that moment could make it store files
from outside the folder. Contents are therefore read here, beneath a descriptor of the folder and
without following links; git gets them as a stream and opens no file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from ...._platform.open_beneath import is_beneath, open_step_by_step
from ...._platform.regular_files import check_regular
from ....errors import WorkspaceError
from .._listing import MAX_DEPTH, hold_open
from .git import (
    VIEW_MARK,
    Git,
    KilledGitError,
    OwnGitFolder,
    check_ids,
    make_git_folder,
    remove_stale_lock,
    select_present,
    split_at_nul,
    write_pack,
)
from .repository import FAN_OUT, Repository, find_repository
from .store import (
    MAX_FILE_BYTES,
    SOURCE_INDEX,
    UNFINISHED,
    FileChange,
    StoredFiles,
    TreeEntry,
    TreeStore,
    WorkingFiles,
    add_patterns,
    check_size,
    is_link,
)

# git compares times in seconds. It rereads a file if the file and the index were written in the
# same second, which in a new folder means all files. So the index gets a later time, and files that
# have changed since, by their times in nanoseconds, leave the index before it is used.
_TRUST_NS = 2_000_000_000

_NO_CONVERSION = "* -text -eol -ident -filter -working-tree-encoding !merge !diff\n"
"""Attributes that take precedence over every `.gitattributes`."""

_STATUS = {"A": "added", "M": "modified", "D": "deleted", "T": "type"}

_PACK_HEADER_BYTES = 12
_MAX_LOOSE = 200  # objects; packs with no more are unpacked: many small packs make git slow

_COMMIT = "mudroom <mudroom@localhost> 946684800 +0000"
"""Author of all commits, so equal trees and parents give equal ids."""


class GitStore(TreeStore):
    def __init__(self, directory: str, source: str, excluded: Iterable[str] = ()) -> None:
        source = os.path.realpath(source)
        self._measured = ("", 0)
        self._forced: dict[str, ForcedFiles] = {}
        self._known: dict[str, tuple[tuple[int, ...], StoredFiles]] = {}
        self._views = os.path.join(directory, "borrowed")
        self.git = Git(OwnGitFolder(directory), source=source, views=self._views)
        repository = self._find_repository(source)
        super().__init__(directory, source, excluded, repository)
        # Earlier versions borrowed through this file; git follows it transitively.
        Path(directory, "objects/info/alternates").unlink(missing_ok=True)
        if repository:
            self._borrow_objects(repository)
        if "sha256" in Path(directory, "config").read_text():
            self.algorithm = "sha256"

    def _find_repository(self, folder: str) -> Repository | None:
        return find_repository(folder)

    def _find_object_format(self) -> str:
        return self.repository.find_algorithm() if self.repository else "sha1"

    def _create(self, patterns: Sequence[str]) -> None:
        temporary = f"{self.directory}.{os.urandom(6).hex()}{UNFINISHED}"
        os.makedirs(temporary, mode=0o700)
        names = Git(OwnGitFolder(temporary), source=self.source)
        object_format = self._find_object_format()
        names.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
        info = Path(temporary, "info")
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_NO_CONVERSION)
        excludes = self.repository.read_excludes() if self.repository else b""
        (info / "exclude").write_bytes(add_patterns(excludes, patterns))
        Path(temporary, "indexes").mkdir()
        try:
            os.rename(temporary, self.directory)
        except OSError:  # another thread or process was faster
            shutil.rmtree(temporary)
            if not os.path.isfile(os.path.join(self.directory, "HEAD")):
                raise

    def _store_files(self, files: WorkingFiles, index_name: str) -> StoredFiles:
        git = self.open_git(files, index_name)
        index = git.index
        remove_stale_lock(index)
        forget_recent_files(git, files.folder)
        changed = git.run("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard", "--", ".")
        forced = ForcedFiles()
        is_own = is_beneath(files.folder, self.source)
        if is_own and (repository := find_repository(files.folder)):
            self._borrow_objects(repository)
            forced = self.find_forced(repository, files)
        found = {*split_at_nul(changed), *forced.list_present(files.folder)}
        paths, too_deep = _leave_out_deep(found)
        nested = [path.rstrip("/") for path in paths if path.endswith("/")]
        if not found and (known := self._known.get(index)) and known[0] == _stat(index):
            return known[1]
        sizes, missing = _inspect(files.folder, paths)
        check_size(files.folder, len(paths), sum(sizes), self.max_bytes)
        present = [path for path in paths if path not in missing and not path.endswith("/")]
        store_contents(git, files.folder, present, self.find_id)
        notes = [f"{path} ({reason})" for path, reason in missing.items()]
        notes += [f"{path} (more than {MAX_DEPTH} folders deep)" for path in too_deep]
        notes += [forced.note] if forced.note else []
        trees: dict[str, str] = {}
        for number, path in enumerate(nested):
            folder = os.path.join(files.folder, path)
            stored = self._store_files(WorkingFiles(folder), f"{index_name}+{number}")
            trees[path] = stored.tree
            notes += [f"{path}/{note}" for note in stored.missing]
        stored = StoredFiles(self._write_index(git, trees), tuple(notes))
        self._known[index] = (_stat(index), stored)
        return stored

    def open_git(self, files: WorkingFiles, index_name: str) -> Git:
        index = self.find_index(index_name)
        return replace(self.git, index=index, files=files.top, prefix=files.prefix)

    def find_forced(self, repository: Repository, files: WorkingFiles) -> ForcedFiles:
        """Find the files that the user's repository tracks although it ignores them."""
        # Only a new index can have more: the store's index already has the others.
        facts = _stat(os.path.join(repository.directory, "index"))
        known = self._forced.get(files.folder)
        if known is None or known.index != facts:
            known = self._forced[files.folder] = self._list_forced(repository, files, facts)
        return known

    def _list_forced(
        self, repository: Repository, files: WorkingFiles, facts: tuple[int, ...]
    ) -> ForcedFiles:
        """List them from a copy of the index: git must not see the user's configuration."""
        if not facts:
            return ForcedFiles()
        place = Path(self.directory)
        with tempfile.TemporaryDirectory(UNFINISHED, f"{place.name}.", place.parent) as folder:
            try:
                repository.copy_index(folder)
                paths = self._read_forced(folder, repository, files)
            except KilledGitError:
                raise
            except (OSError, WorkspaceError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                note = f".git/index (not read, so ignored files in it are left out: {reason})"
                return ForcedFiles(facts, note=note)
        return ForcedFiles(facts, tuple(paths))

    def _read_forced(self, folder: str, repository: Repository, files: WorkingFiles) -> list[str]:
        git = replace(
            self.git,
            directory=make_git_folder(folder, self.algorithm),
            files=files.top,
            prefix=files.prefix,
            objects=os.path.join(self.directory, "objects"),
        )
        Path(folder, "info/exclude").write_bytes(repository.read_excludes())
        output = git.run("ls-files", "-z", "-i", "-c", "--exclude-standard", "--", ".")
        return split_at_nul(output)

    def _borrow_objects(self, repository: Repository) -> None:
        """Use the objects of a repository: the source's, or one inside it such as a submodule.

        git reads them through links: in the folder itself it would follow `info/alternates`, which
        may name any folder.
        """
        name = hashlib.sha256(os.fsencode(repository.objects)).hexdigest()
        view = os.path.join(self._views, name)
        if os.path.islink(repository.objects) or not os.path.isdir(repository.objects):
            return
        os.makedirs(view, exist_ok=True)
        names = {VIEW_MARK, *filter(FAN_OUT.fullmatch, os.listdir(repository.objects))}
        for name in names.difference(os.listdir(view)):
            with suppress(FileExistsError):  # another thread or process was faster
                os.symlink(os.path.join(repository.objects, name), os.path.join(view, name))

    def _write_index(self, git: Git, nested: dict[str, str]) -> str:
        if nested:
            combined = f"{git.index}.combined"
            remove_stale_lock(combined)
            Path(combined).unlink(missing_ok=True)
            if os.path.exists(git.index):
                shutil.copyfile(git.index, combined)
            git = replace(git, index=combined)
            for path, tree in nested.items():
                git.run("read-tree", f"--prefix={git.prefix}{path}/", tree)
        if not git.prefix:
            return git.read_line("write-tree")
        if not git.run("ls-files", "-z", "--", "."):
            return self.empty_tree
        return git.read_line("write-tree", f"--prefix={git.prefix}")

    def write_files(self, tree: str, files: WorkingFiles, index_name: str) -> None:
        index = self.find_index(index_name)
        remove_stale_lock(index)
        Path(index).unlink(missing_ok=True)
        git = replace(self.git, index=index, files=files.top)
        git.run("read-tree", *([f"--prefix={files.prefix}"] if files.prefix else []), tree)
        git.run("checkout-index", "--all", "--force", "--index", "--quiet")
        _trust_index(index)

    def list_entries(self, tree: str, paths: Sequence[str] = ()) -> dict[str, TreeEntry]:
        output = self.git.run("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths)
        entries = (entry.partition("\t") for entry in split_at_nul(output))
        return {path: _read_entry(facts) for facts, _, path in entries}

    def measure_tree(self, tree: str) -> int:
        if tree != self._measured[0]:
            entries = split_at_nul(self.git.run("ls-tree", "-r", "-l", "-z", tree))
            sizes = (entry.partition("\t")[0].rsplit(" ", 1)[1] for entry in entries)
            self._measured = (tree, sum(int(size) for size in sizes if size.isdigit()))
        return self._measured[1]

    def list_changes(self, before: str, after: str) -> list[FileChange]:
        output = self.git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)
        parts = split_at_nul(output)
        return [
            _read_change(facts, path) for facts, path in zip(parts[::2], parts[1::2], strict=True)
        ]

    def read(self, object_id: str) -> bytes:
        """Read a file's content; b"" for the id ""."""
        if not object_id:
            return b""
        try:
            data = zlib.decompress(Path(self._find_loose(object_id)).read_bytes())
        except FileNotFoundError:  # borrowed
            return self.git.run("cat-file", "blob", object_id)
        return data[data.index(b"\0") + 1 :]

    def read_difference(self, before: str, after: str) -> str:
        options = ("--no-color", "--no-ext-diff", "--no-textconv")
        output = self.git.run("diff", *options, before, after)
        return output.decode("utf-8", "backslashreplace")

    def pack_trees(self, trees: Sequence[str], known: Sequence[str], path: str) -> None:
        """Write a pack of trees for a store that has the known ones; see `write_pack`."""
        write_pack(self.git, trees, known, path)

    def unpack_trees(self, trees: Sequence[str], path: str) -> None:
        """Add the objects of trees from a pack of `pack_trees`; git computes their ids.

        Raises WorkspaceError if the pack is damaged, or if an object is still missing afterwards.
        """
        check_ids(*trees)
        name = " and ".join(trees)
        with open(path, "rb", buffering=0) as file:
            header = file.read(_PACK_HEADER_BYTES)
            if len(header) < _PACK_HEADER_BYTES or not header.startswith(b"PACK"):
                raise WorkspaceError(f"the pack of the tree {name} is damaged: it is no pack")
            is_small = int.from_bytes(header[8:], "big") <= _MAX_LOOSE
            file.seek(0)
            command = ("unpack-objects", "-q") if is_small else ("index-pack", "--stdin")
            try:
                self.git.run(*command, read_from=file)
                self._check_trees(trees)
            except WorkspaceError as error:
                raise WorkspaceError(f"the pack of the tree {name} is damaged: {error}") from error

    def _check_trees(self, trees: Sequence[str]) -> None:
        """Raise WorkspaceError if an object of a tree is missing."""
        self.git.run("rev-list", "--objects", "--quiet", *(f"{tree}^{{tree}}" for tree in trees))

    def has_tree(self, tree: str) -> bool:
        check_ids(tree)
        if not select_present(self.git, [tree]):
            return False
        try:
            self._check_trees([tree])
        except WorkspaceError:  # such as after a damaged pack
            return False
        return True

    def list_ignored_folders(self) -> list[str]:
        """List the source's folders that git ignores, without those inside them."""
        git = self.open_git(self.source_files, SOURCE_INDEX)
        paths = list_ignored(git, "--directory", "--exclude-standard")
        return [path.rstrip("/") for path in paths if path.endswith("/")]

    def list_included(self, patterns: str) -> list[str]:
        """List the source's ignored files that match the patterns in a file."""
        git = self.open_git(self.source_files, SOURCE_INDEX)
        named = list_ignored(git, f"--exclude-from={patterns}")
        ignored = set(list_ignored(git, "--exclude-standard"))
        return [path for path in named if path in ignored]

    def make_commit(self, tree: str, *parents: str) -> str:
        """Store a commit of a tree; equal arguments give equal ids."""
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {_COMMIT}", f"committer {_COMMIT}", "", ""]
        return self._write_object("commit", "\n".join(lines).encode())

    def _write_object(self, kind: str, data: bytes) -> str:
        object_id = self.find_id(data, kind)
        path = self._find_loose(object_id)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix="tmp_obj_")
            with os.fdopen(descriptor, "wb") as file:
                file.write(zlib.compress(b"%s %d\0" % (kind.encode(), len(data)) + data, 1))
                file.flush()
                os.fsync(descriptor)
            os.rename(name, path)
        return object_id

    def remove_unfinished(self) -> None:
        super().remove_unfinished()
        for path in Path(self.directory, "objects").glob("tmp_objdir*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in Path(self.directory, "objects").glob("*/tmp_obj_*"):
            path.unlink(missing_ok=True)
        for path in Path(self.directory, "objects").glob("pack/tmp_*"):
            path.unlink(missing_ok=True)
        for path in Path(self.directory).parent.glob(f"*{UNFINISHED}"):
            shutil.rmtree(path, ignore_errors=True)

    def _find_loose(self, object_id: str) -> str:
        return os.path.join(self.directory, "objects", object_id[:2], object_id[2:])


def list_ignored(git: Git, *options: str, paths: Sequence[str] = (".",)) -> list[str]:
    command = ("ls-files", "-z", "--others", "--ignored", *options, "--", *paths)
    return split_at_nul(git.run(*command))


class ForcedFiles(Struct, frozen=True):
    """Files that a repository tracks although it ignores them.

    Arguments:
        index: facts about the index they come from; see `_stat`.
        note: why they are unknown, "" if they are known.
    """

    index: tuple[int, ...] = ()
    paths: tuple[str, ...] = ()
    note: str = ""

    def list_present(self, folder: str) -> list[str]:
        return [path for path in self.paths if os.path.lexists(f"{folder}/{path}")]


def _stat(path: str) -> tuple[int, ...]:
    """Read facts about a file that change when it is written; () if there is none."""
    try:
        facts = os.stat(path)
    except OSError:
        return ()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _leave_out_deep(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Sort the paths, and separate the folders that are too deep for a store.

    Each level costs git and mudroom time for every level above it, and paths end at 4,096 bytes.
    """
    stored: list[str] = []
    too_deep: dict[str, None] = {}
    for path in sorted(paths):
        if path.count("/") > MAX_DEPTH:
            too_deep["/".join(path.split("/", MAX_DEPTH + 1)[:-1])] = None
        else:
            stored.append(path)
    return stored, list(too_deep)


def _inspect(folder: str, paths: Iterable[str]) -> tuple[list[int], dict[str, str]]:
    """Return the sizes of the files that can be stored, and the others with reasons."""
    sizes: list[int] = []
    missing: dict[str, str] = {}
    for path in paths:
        absolute = f"{folder}/{path}"
        try:
            facts = os.lstat(absolute)
        except OSError:
            continue  # removed
        if stat.S_ISLNK(facts.st_mode) or stat.S_ISDIR(facts.st_mode):
            continue
        if not stat.S_ISREG(facts.st_mode):
            missing[path] = "is no regular file"
        elif facts.st_size > MAX_FILE_BYTES:
            missing[path] = f"larger than {MAX_FILE_BYTES >> 20} MiB"
        elif not os.access(absolute, os.R_OK):
            missing[path] = "cannot be read"
        else:
            sizes.append(facts.st_size)
    return sizes, missing


def _read_change(facts: str, path: str) -> FileChange:
    """Read one difference: ":100644 100755 <id> <id> M"."""
    old_mode, new_mode, before, after, status = facts.removeprefix(":").split(" ")
    is_deleted = status == "D"
    return FileChange(
        path,
        _STATUS[status[0]],
        before="" if status == "A" else before,
        after="" if is_deleted else after,
        mode=int(old_mode if is_deleted else new_mode, 8),
        was_link=is_link(int(old_mode, 8)),
    )


def _read_entry(facts: str) -> TreeEntry:
    """Read one entry: "100644 blob <id>"."""
    mode, _, object_id = facts.split(" ")
    return TreeEntry(int(mode, 8), object_id)


def _trust_index(index: str) -> None:
    """Make git trust the facts in an index that has just been written."""
    written = os.stat(index).st_mtime_ns
    os.utime(index, ns=(written, written + _TRUST_NS))


def forget_recent_files(git: Git, folder: str) -> None:
    """Make git reread the files that changed after `_trust_index`.

    Their contents stay in the index: a file that cannot be stored has not been removed.
    Does nothing after git has written the index again.
    """
    try:
        facts = os.stat(git.index)
    except FileNotFoundError:
        return
    if facts.st_mtime_ns - _TRUST_NS > facts.st_ctime_ns or facts.st_mtime_ns < facts.st_ctime_ns:
        return
    written = facts.st_mtime_ns - _TRUST_NS
    recent = {f"{git.prefix}{path}" for path in _list_changed_since(folder, written)}
    if recent:
        entries = split_at_nul(git.run("ls-files", "-z", "--stage", "--full-name", "--", "."))
        # A rewritten entry has no times.
        data = [f"{entry}\0" for entry in entries if entry.partition("\t")[2] in recent]
        git.run("update-index", "-z", "--index-info", data=os.fsencode("".join(data)))
    os.utime(git.index)


def _list_changed_since(folder: str, moment: int) -> list[str]:
    """List the files changed at or after a moment, in nanoseconds since 1970."""
    changed: list[str] = []
    left = [""]
    while left:
        path = left.pop()
        with os.scandir(os.path.join(folder, path)) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    if entry.stat(follow_symlinks=False).st_ctime_ns >= moment:
                        changed.append(path + entry.name)
                elif entry.name != ".git" and path.count("/") < MAX_DEPTH:
                    left.append(f"{path}{entry.name}/")  # no index has deeper files
    return changed


_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EXDEV)
"""Errors for a path without a file or link: it was removed, or replaced by something else."""


def store_contents(
    git: Git, folder: str, paths: Sequence[str], find_id: Callable[[bytes], str]
) -> None:
    """Store files and links and enter them into the index; remove entries that are gone."""
    if not paths:
        return
    try:
        entries = _import_contents(git, folder, paths, find_id)
    except OSError as error:
        raise WorkspaceError(
            f"a file cannot be stored: {error.strerror}",
            where=folder,
            remedy="Look at the rights of its files, and at the room on the disk.",
        ) from error
    git.run("update-index", "-z", "--index-info", data=b"".join(entries))
    # Record facts about the files, so that next time they need not be read. This stores no content.
    git.run("update-index", "-q", "--refresh", codes=(0, 1))


def _import_contents(
    git: Git, folder: str, paths: Sequence[str], find_id: Callable[[bytes], str]
) -> list[bytes]:
    entries: list[bytes] = []
    none = "0" * len(find_id(b""))
    with (
        hold_open(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as top,
        tempfile.TemporaryFile(dir=git.directory) as stream,
    ):
        for path in paths:
            mode, object_id = _add_content(stream, top, path, find_id) or (0, none)
            name = os.fsencode(f"{git.prefix}{path}")
            entries.append(b"%o %s\t%s\0" % (mode, object_id.encode(), name))
        stream.seek(0)
        git.run("fast-import", "--quiet", read_from=stream)
    return entries


def _add_content(
    stream: BinaryIO, top: int, path: str, find_id: Callable[[bytes], str]
) -> tuple[int, str] | None:
    """Write a file's content to the stream; return its mode and id, None if it is gone."""
    try:
        mode, data = read_content(top, path)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    stream.write(b"blob\ndata %d\n" % len(data))
    stream.write(data)
    stream.write(b"\n")
    return mode, find_id(data)


def read_content(top: int, path: str) -> tuple[int, bytes]:
    """Read a file or link below an open folder; return git's mode and the content."""
    folder, _, name = path.rpartition("/")
    flags = os.O_PATH | os.O_DIRECTORY
    with hold_open(open_step_by_step(top, folder or ".", flags)) as parent:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return 0o120000, os.fsencode(os.readlink(name, dir_fd=parent))
        with open(open_step_by_step(parent, name, _FLAGS), "rb") as file:
            facts = os.fstat(file.fileno())
            check_regular(facts, path)
            return 0o100755 if facts.st_mode & stat.S_IXUSR else 0o100644, file.read()
