"""Trees of files as git objects in a folder of their own.

The store borrows the objects of the user's repository, and never writes them. Files are stored as
their bytes are: no line ends, filters or encodings are converted.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from ..._core.run_ids import make_ref_name, read_ref_name
from ...errors import WorkspaceError
from .git import Git, split_at_nul
from .recent_files import forget_recent_files
from .repository import find_repository

MAX_FILE_BYTES = 50 << 20
"""Size of a file up to which it is stored."""

_NO_CONVERSION = "* -text -eol -ident -filter -working-tree-encoding !merge !diff\n"
"""Attributes with precedence over all files `.gitattributes`."""

_TREES = "refs/trees/"
_MERGED = "refs/merged/"

_ATTEMPTS = 3
"""Times that files are read while another program changes them."""


class WorkingFiles(Struct, frozen=True):
    """Files in a folder.

    Arguments:
        top: absolute path of the folder with the first ignore rules.
        prefix: path of the files below it, "" or with "/" at the end.
    """

    top: str
    prefix: str = ""

    @property
    def folder(self) -> str:
        """Absolute path of the folder with the files."""
        return os.path.join(self.top, self.prefix).rstrip("/") or "/"


class StoredFiles(Struct, frozen=True):
    """Files of a folder at one moment.

    Arguments:
        tree: id of the git tree. missing: paths that the tree lacks, with reasons.
    """

    tree: str
    missing: tuple[str, ...] = ()


class FileChange(Struct, frozen=True):
    """One difference between two trees.

    Arguments:
        path: relative to the folder.
        status: "added", "modified", "deleted" or "type" (a file became a link, or a link a file).
        before, after: object ids; "" for no file. mode: git's mode of the file after the change,
            of a deleted file before.
    """

    path: str
    status: str
    before: str
    after: str
    mode: int


_STATUS = {"A": "added", "M": "modified", "D": "deleted", "T": "type"}


class TreeStore:
    """A git folder with the trees of a session. The methods block.

    Arguments:
        directory: absolute path of the git folder; it is made if it is missing.
        source: the folder whose files runs get.
        excluded: absolute paths that no tree has, such as mudroom's state folder.

    Raises WorkspaceError if git cannot be used.
    """

    def __init__(self, directory: str, source: str, excluded: Iterable[str] = ()) -> None:
        self.directory = directory
        self.source = os.path.realpath(source)
        self._excluded = tuple(excluded)
        self.repository = find_repository(self.source)
        self.git = Git(directory)
        if not os.path.isfile(os.path.join(directory, "HEAD")):
            self._create()
            self.ignore_paths(self._list_excluded())

    def _list_excluded(self) -> Iterator[str]:
        """Yield the patterns of the excluded paths below the top of the source."""
        for path in map(os.path.realpath, self._excluded):
            relative = os.path.relpath(path, self.source_files.top)
            if not relative.startswith(".."):
                yield f"/{relative}"

    @property
    def source_files(self) -> WorkingFiles:
        """The files of the source."""
        if self.repository is None:
            return WorkingFiles(self.source)
        return WorkingFiles(self.repository.top, self.prefix)

    @property
    def prefix(self) -> str:
        """Path of the source below the top of its repository, "" or with "/" at the end."""
        if self.repository is None or self.repository.top == self.source:
            return ""
        return os.path.relpath(self.source, self.repository.top) + "/"

    def _create(self) -> None:
        """Make the git folder."""
        temporary = f"{self.directory}.{os.urandom(6).hex()}.new"
        os.makedirs(temporary, mode=0o700)
        names = Git(temporary)
        object_format = "sha1"
        if self.repository:
            user_git = Git(self.repository.directory)
            object_format = user_git.read_line("rev-parse", "--show-object-format")
        names.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
        info = Path(temporary, "info")
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_NO_CONVERSION)
        if self.repository:
            (info / "exclude").write_bytes(self.repository.read_excludes())
            _write_alternates(temporary, self.repository.objects)
        Path(temporary, "indexes").mkdir()
        try:
            os.rename(temporary, self.directory)
        except OSError:  # another thread or process was faster
            shutil.rmtree(temporary)
            if not os.path.isfile(os.path.join(self.directory, "HEAD")):
                raise

    @cached_property
    def empty_tree(self) -> str:
        """Id of the tree without files."""
        return self.git.read_line("hash-object", "-t", "tree", "-w", "--stdin")

    def find_index(self, name: str) -> str:
        """Return the path of an index file of the store."""
        return os.path.join(self.directory, "indexes", name)

    def ignore_paths(self, patterns: Iterable[str]) -> None:
        """Leave paths out of all trees. `patterns`: as in `.gitignore`."""
        path = Path(self.directory, "info/exclude")
        known = path.read_bytes().splitlines() if path.exists() else []
        new = [os.fsencode(pattern) for pattern in patterns]
        new = [pattern for pattern in new if pattern not in known]
        if new:
            with path.open("ab") as file:
                file.write(b"".join(b"\n" + pattern for pattern in new) + b"\n")

    def store_source(self) -> StoredFiles:
        """Store the files of the source as they are, with changed and untracked files."""
        return self.store_files(self.source_files, "source")

    def store_files(self, files: WorkingFiles, index_name: str) -> StoredFiles:
        """Store the files of a folder as they are. Files that git ignores are left out.

        Arguments:
            index_name: of the index with the facts about files that were stored before.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return self._store_files(files, index_name)
            except WorkspaceError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _store_files(self, files: WorkingFiles, index_name: str) -> StoredFiles:
        index = self.find_index(index_name)
        git = Git(self.directory, index=index, files=files.top, prefix=files.prefix)
        forget_recent_files(git, files.folder)
        changed = git.run("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard", "--", ".")
        paths = sorted(set(split_at_nul(changed)))
        nested = [path.rstrip("/") for path in paths if path.endswith("/")]
        missing = dict(_find_missing(files.folder, paths))
        if paths:
            excluded = [f":(exclude,literal){path}" for path in (*nested, *missing)]
            _add_files(git, [".", *excluded])
        forced = self._find_forced(files)
        if forced:
            _add_files(git, [f":(literal){path}" for path in forced], "--force")
        notes = [f"{path} ({reason})" for path, reason in missing.items()]
        trees: dict[str, str] = {}
        for number, path in enumerate(nested):
            folder = os.path.join(files.folder, path)
            self._borrow_objects(folder)
            stored = self._store_files(WorkingFiles(folder), f"{index_name}+{number}")
            trees[path] = stored.tree
            notes += [f"{path}/{note}" for note in stored.missing]
        return StoredFiles(self._write_tree(git, trees), tuple(notes))

    def _find_forced(self, files: WorkingFiles) -> list[str]:
        """Return the files that the user's repository tracks although it ignores them."""
        repository = find_repository(files.folder)
        if repository is None or not files.folder.startswith(self.source):
            return []
        git = Git(repository.directory, files=files.top, prefix=files.prefix)
        output = git.run("ls-files", "-z", "-i", "-c", "--exclude-standard", "--", ".")
        folder = files.folder
        return [path for path in split_at_nul(output) if os.path.lexists(f"{folder}/{path}")]

    def _borrow_objects(self, folder: str) -> None:
        """Borrow the objects of a repository inside the folder, such as a submodule."""
        repository = find_repository(folder)
        if repository is None or repository.top != folder:
            return
        _write_alternates(self.directory, repository.objects)

    def _write_tree(self, git: Git, nested: dict[str, str]) -> str:
        """Write the tree of an index, with the trees of nested repositories in it."""
        if nested:
            combined = f"{git.index}.combined"
            Path(combined).unlink(missing_ok=True)
            if os.path.exists(git.index):
                shutil.copyfile(git.index, combined)
            git = Git(git.directory, index=combined, files=git.files, prefix=git.prefix)
            for path, tree in nested.items():
                git.run("read-tree", f"--prefix={git.prefix}{path}/", tree)
        if not git.prefix:
            return git.read_line("write-tree")
        if not git.run("ls-files", "-z", "--", "."):
            return self.empty_tree
        return git.read_line("write-tree", f"--prefix={git.prefix}")

    def list_changes(self, before: str, after: str) -> list[FileChange]:
        """Return the differences between two trees, by path."""
        output = self.git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)
        parts = split_at_nul(output)
        return [
            _read_change(facts, path) for facts, path in zip(parts[::2], parts[1::2], strict=True)
        ]

    def read(self, object_id: str) -> bytes:
        """Return the content of a file, b"" for the id ""."""
        return self.git.run("cat-file", "blob", object_id) if object_id else b""

    def keep(self, name: str, tree: str, base: str) -> str:
        """Keep a tree under a name, as a commit after the commit of its base; return its id."""
        commit = self.make_commit(tree, self.make_commit(base))
        self.git.run("update-ref", _TREES + make_ref_name(name), commit)
        return commit

    def find_kept(self, name: str) -> tuple[str, str] | None:
        """Return the ids of base and tree that are kept under a name, None without one."""
        ref = _TREES + make_ref_name(name)
        commits = (f"{ref}~", ref)
        options = ("--verify", "--quiet")
        trees = [
            os.fsdecode(self.git.run("rev-parse", *options, f"{commit}^{{tree}}", codes=(0, 1)))
            for commit in commits
        ]
        return (trees[0].strip(), trees[1].strip()) if all(trees) else None

    def mark_merged(self, name: str) -> None:
        """Record that the tree with a name is merged."""
        self.git.run("update-ref", _MERGED + make_ref_name(name), _TREES + make_ref_name(name))

    def list_kept(self) -> dict[str, bool]:
        """Return the names of the kept trees, and whether each one is merged."""
        refs = os.fsdecode(self.git.run("for-each-ref", "--format=%(refname)")).split()
        names = (ref.removeprefix(_TREES) for ref in refs if ref.startswith(_TREES))
        return {read_ref_name(name): f"{_MERGED}{name}" in refs for name in names}

    def drop(self, name: str) -> None:
        """Remove the tree with a name."""
        for folder in (_TREES, _MERGED):
            self.git.run("update-ref", "-d", folder + make_ref_name(name))

    def make_commit(self, tree: str, *parents: str) -> str:
        """Return the id of a commit with a tree; equal arguments give an equal id."""
        options = [option for parent in parents for option in ("-p", parent)]
        return self.git.read_line("commit-tree", tree, *options)


def _write_alternates(directory: str, folders: Iterable[str]) -> None:
    """Add object folders to those that a git folder borrows from."""
    path = Path(directory, "objects/info/alternates")
    try:
        known = path.read_bytes().splitlines()
    except FileNotFoundError:
        known = []
    lines = dict.fromkeys([*known, *map(os.fsencode, folders)])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _find_missing(folder: str, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the files that cannot be stored, with the reason."""
    for path in paths:
        absolute = f"{folder}/{path}"
        try:
            facts = os.lstat(absolute)
        except OSError:
            continue  # it was removed
        if not stat.S_ISREG(facts.st_mode):
            continue
        if facts.st_size > MAX_FILE_BYTES:
            yield path, f"larger than {MAX_FILE_BYTES >> 20} MiB"
        elif not os.access(absolute, os.R_OK):
            yield path, "cannot be read"


def _add_files(git: Git, patterns: list[str], *options: str) -> None:
    data = b"".join(os.fsencode(pattern) + b"\0" for pattern in patterns)
    git.run("add", "-A", *options, "--pathspec-from-file=-", "--pathspec-file-nul", data=data)


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
    )
