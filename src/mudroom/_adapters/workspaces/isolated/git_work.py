"""Work a run left only in git: commits, stashes and staged contents that its files lack.

A run's git folder is removed with its workspace. Before that, whatever its objects hold beyond the
stored files is kept: commits as a bundle that any repository can fetch from, staged contents and
the state of an unfinished merge or rebase as plain files. All of it is one tree beside the work, so
it travels to other machines and is dropped along with the work.

The run has written these git folders, so they are data: objects are copied without following
links, and git reads the copies with mudroom's own configuration.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ...._core.runs import GitWork
from ...._platform.paths import path_to_text
from ...._platform.regular_files import check_regular
from ....errors import WorkspaceError
from .._listing import MAX_DEPTH, hold_open
from .git import Git, KilledGitError, make_git_folder, select_present, split_at_nul, write_pack
from .git_store import GitStore
from .repository import (
    FAN_OUT,
    OBJECT_ID,
    Repository,
    copy_inside,
    open_inside,
    read_inside,
)
from .store import MAX_FILES, REGULAR, UNFINISHED, TreeEntry, WorkingFiles

MAX_GIT_BYTES = 100 << 20  # of new objects per git folder; if it has more, the workspace stays
MAX_NAMES = 20  # commits, staged files and git folders to name; the rest is counted
BUNDLE = "commits.bundle"  # file with the commits of a git folder
_MAX_SUBJECT = 60  # characters of a commit's subject in a name
_SHOWN_ID = 10  # digits of an id in a name

_MAX_STATE_FILES = 100

_LOOSE = re.compile("[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK = re.compile(r"pack-[0-9a-f]+\.pack")

_STATES = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "sequencer": "sequence of commits",
    "BISECT_LOG": "bisect",
}
"""Files and folders in a git folder that exist while an operation is unfinished."""

_MESSAGES = ("MERGE_MSG", "SQUASH_MSG")

_KINDS = {
    "refs/heads/": "branch",
    "refs/tags/": "tag",
    "refs/remotes/": "remote branch",
    "refs/notes/": "notes",
}


class _Tip(Struct, frozen=True):
    """The end of a history.

    Arguments:
        name: what leads to it, such as "stash" or "branch topic". ref: its name in a bundle.
    """

    id: str
    name: str
    ref: str


class _Commit(Struct, frozen=True):
    """A commit or a tag: the objects it names, and the first line of its message."""

    parents: tuple[str, ...]
    subject: str


class _Copy(Struct, frozen=True):
    """A run's git folder, with a copy of its objects.

    Arguments:
        path: of the git folder, below the run's files.
        source: its refs, as data. git: runs on the copy, with the store's objects.
        place: folder for further files.
        new: kinds of the objects that the run made, by id: all contents, and any others the store
            lacks.
    """

    path: str
    source: Repository
    git: Git
    place: str
    new: dict[str, str]

    @property
    def folder(self) -> str:
        """Path of its working files below the run's files; "" if they are the same."""
        return os.path.dirname(self.path)


class _Found:
    def __init__(self) -> None:
        self.only: list[str] = []
        self.commits: list[str] = []
        self.unread: list[str] = []
        self.entries: dict[str, TreeEntry] = {}


def keep_git_work(store: GitStore, files: WorkingFiles, tree: str) -> GitWork | None:
    """Keep work that is in a run's git folders but not in its stored files."""
    found = _Found()
    for number, path in enumerate(_find_git_folders(files.folder, found.unread)):
        try:
            _keep_folder(store, files.folder, path, tree, found, number)
        except KilledGitError:
            raise
        except (OSError, WorkspaceError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            found.unread.append(f"{path_to_text(path)} ({reason})")
    if not (found.only or found.commits or found.unread):
        return None
    return GitWork(
        _shorten(found.only),
        _shorten(found.commits),
        _shorten(found.unread),
        tree=store.write_tree(found.entries) if found.entries else "",
    )


def join_git_work(store: GitStore, earlier: GitWork | None, now: GitWork | None) -> GitWork | None:
    """Join a run's git work with that of an earlier part of it, whose folder was removed."""
    if earlier is None or now is None:
        return earlier or now
    entries = {
        f"earlier/{path}": entry
        for path, entry in (store.list_entries(earlier.tree) if earlier.tree else {}).items()
    }
    entries |= store.list_entries(now.tree) if now.tree else {}
    place = f" in {earlier.folder}" if earlier.folder else ""
    return GitWork(
        (*earlier.only, *now.only),
        (*earlier.commits, *now.commits),
        (*(f"{each}{place}" for each in earlier.unread), *now.unread),
        now.folder or earlier.folder,
        store.write_tree(entries) if entries else "",
    )


def _shorten(names: Sequence[str]) -> tuple[str, ...]:
    more = len(names) - MAX_NAMES
    return (*names[:MAX_NAMES], f"{more} more") if more > 0 else tuple(names)


def _find_git_folders(top: str, unread: list[str]) -> Iterator[str]:
    """Yield the paths of the git folders below a folder, including those of submodules."""
    left = [""]
    while left:
        path = left.pop()
        is_module = "/modules/" in f"/{path}" and ".git/" in path
        try:
            with os.scandir(os.path.join(top, path)) as entries:
                names = {each.name for each in entries if each.is_dir(follow_symlinks=False)}
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                unread.append(f"{path_to_text(path)} ({error.strerror})")
            continue
        if is_module and {"objects", "refs"} <= names:
            yield path.rstrip("/")
            names &= {"modules"}
        if ".git" in names:
            names.remove(".git")
            yield f"{path}.git"
            left.append(f"{path}.git/modules/")
        if path.count("/") < MAX_DEPTH:
            left += [f"{path}{name}/" for name in names]


def _keep_folder(
    store: GitStore, top: str, path: str, tree: str, found: _Found, number: int
) -> None:
    """Add work that only one git folder has. Raises OSError, WorkspaceError if unreadable."""
    place = os.path.dirname(path)
    label = f"{path_to_text(place)}: " if place else ""
    begun = (name for name in _STATES if os.path.lexists(os.path.join(top, path, name)))
    states = sorted({_STATES[name] for name in begun})
    entries: dict[str, TreeEntry] = {}
    only: list[str] = []
    commits: list[str] = []
    if _has_objects(top, path):
        with _copy_objects(store, top, path) as copy:
            if copy.new:
                only, commits = _keep_objects(store, copy, tree, entries)
    if states:
        only += [f"a {state} that is not finished" for state in states]
        _keep_state(store, top, path, entries)
    # Files of different repositories must not get the same path.
    prefix = f"{number}-{os.path.basename(place)}/" if place else ""
    found.entries.update({f"{prefix}{name}": entry for name, entry in entries.items()})
    found.only += [label + name for name in only]
    found.commits += [label + name for name in commits]


def _has_objects(top: str, path: str) -> bool:
    names = _list(top, f"{path}/objects")
    return any(FAN_OUT.fullmatch(name) for name in names) or bool(
        "pack" in names and _list(top, f"{path}/objects/pack")
    )


def _list(top: str, path: str) -> list[str]:
    """List a folder below another, following no link."""
    try:
        descriptor = open_inside(top, path)
    except FileNotFoundError:
        return []
    with hold_open(descriptor):
        return sorted(os.listdir(descriptor))


@contextmanager
def _copy_objects(store: GitStore, top: str, path: str) -> Generator[_Copy]:
    """Yield a copy of a git folder's objects beside the store, removed afterwards."""
    base = Path(store.directory)
    with tempfile.TemporaryDirectory(UNFINISHED, f"{base.name}.", base.parent) as place:
        own = make_git_folder(os.path.join(place, "git"), store.algorithm)
        git = replace(store.git, directory=own, views="")
        _copy_files(git, top, path)
        listed = git.run("cat-file", "--batch-all-objects", "--batch-check").decode().splitlines()
        facts = [line.split(" ") for line in listed]
        if any(len(each) != 3 for each in facts):
            raise WorkspaceError("an object is damaged")
        # From here on git also sees the objects of the store and of the user's repository.
        objects = os.path.join(os.path.realpath(store.directory), "objects")
        Path(own, "objects/info/alternates").write_bytes(os.fsencode(f"{objects}\n"))
        if store.repository and (shallow := store.repository.read_shallow()):
            Path(own, "shallow").write_text(shallow)
        known = set(select_present(store.git, [each[0] for each in facts]))
        new = {name: kind for name, kind, _ in facts if kind == "blob" or name not in known}
        if sum(int(size) for name, _, size in facts if name in new) > MAX_GIT_BYTES:
            raise _TooLargeError
        directory = os.path.join(top, path)
        source = Repository(top, directory, directory, os.path.join(directory, "objects"))
        yield _Copy(path, source, replace(git, views=store.git.views), place, new)


class _TooLargeError(WorkspaceError):
    def __init__(self) -> None:
        super().__init__(f"its objects take more than {MAX_GIT_BYTES >> 20} MiB")


def _copy_files(git: Git, top: str, path: str) -> None:
    """Copy loose objects and have git reindex packs: the run's own pack index proves nothing."""
    left = MAX_GIT_BYTES
    count = 0
    folder = f"{path}/objects"
    for name in filter(FAN_OUT.fullmatch, _list(top, folder)):
        target = os.path.join(git.directory, "objects", name)
        os.mkdir(target)
        for file in filter(_LOOSE.fullmatch, _list(top, f"{folder}/{name}")):
            copy = os.path.join(target, file)
            try:
                copy_inside(top, f"{folder}/{name}/{file}", copy, max_bytes=left)
            except OSError as error:
                raise (_TooLargeError() if error.errno == errno.EFBIG else error) from error
            left -= os.path.getsize(copy)
            count += 1
            if count > MAX_FILES:
                raise _TooLargeError
    for file in filter(_PACK.fullmatch, _list(top, f"{folder}/pack")):
        with open(open_inside(top, f"{folder}/pack/{file}"), "rb", buffering=0) as pack:
            facts = os.fstat(pack.fileno())
            check_regular(facts, file)
            left -= facts.st_size
            if left < 0:
                raise _TooLargeError
            git.run("index-pack", "--stdin", read_from=pack)


def _keep_objects(
    store: GitStore, copy: _Copy, tree: str, entries: dict[str, TreeEntry]
) -> tuple[list[str], list[str]]:
    """Keep a git folder's commits and staged contents.

    Returns the names of those that the run's files lack, and of commits that they contain.
    """
    only: list[str] = []
    same: list[str] = []
    commits = _read_commits(copy)
    tips = _list_tips(copy, commits)
    parents = {parent for commit in commits.values() for parent in commit.parents}
    known = select_present(store.git, sorted(parents.difference(copy.new)))
    if tips:
        entries[BUNDLE] = TreeEntry(REGULAR | 0o644, store.write(_make_bundle(copy, tips, known)))
    files = _find_folder(copy, tree)
    for number, tip in enumerate(tips):
        subject = commits[tip.id].subject if tip.id in commits else ""
        is_checked = number < MAX_NAMES and tip.name != "stash" and bool(files)
        is_same = is_checked and _has_files_of(copy, tip.id, files)
        name = f"{tip.name}: {subject}" if subject else tip.name
        (same if is_same else only).append(name)
    revisions = [*(tip.id for tip in tips), *(f"^{each}" for each in known)]
    if staged := _keep_staged(store, copy, files, revisions, entries):
        listed = ", ".join(map(path_to_text, staged[:3]))
        more = f" and {len(staged) - 3} more" if len(staged) > 3 else ""
        only.append(f"staged: {listed}{more}")
    return only, same


def _read_commits(copy: _Copy) -> dict[str, _Commit]:
    ids = [name for name, kind in copy.new.items() if kind in ("commit", "tag")]
    if not ids:
        return {}
    data = "".join(f"{each}\n" for each in ids).encode()
    output = copy.git.run("cat-file", "--batch", data=data)
    commits: dict[str, _Commit] = {}
    place = 0
    for name in ids:
        start = output.index(b"\n", place) + 1
        place = start + int(output[place:start].rsplit(b" ", 1)[1])
        commits[name] = _parse_commit(output[start:place])
        place += 1  # the line end after the content
    return commits


def _parse_commit(data: bytes) -> _Commit:
    header, _, message = data.partition(b"\n\n")
    lines = header.decode("utf-8", "replace").split("\n")
    names = ("parent ", "object ") if "type commit" in lines or "type tag" in lines else "parent "
    parents = [line.partition(" ")[2] for line in lines if line.startswith(names)]
    subject = message.decode("utf-8", "replace").strip().partition("\n")[0]
    return _Commit(
        tuple(each for each in parents if OBJECT_ID.fullmatch(each)), subject[:_MAX_SUBJECT]
    )


def _list_tips(copy: _Copy, commits: dict[str, _Commit]) -> list[_Tip]:
    """List new objects that reach all new commits, named ones first.

    Raises WorkspaceError if a ref leads to a missing object.
    """
    named = list(_list_named(copy.source))
    ids = [tip.id for tip in named]
    if len(select_present(copy.git, ids)) < len(ids):
        raise WorkspaceError("an object is missing")
    tips = [tip for tip in named if tip.id in copy.new]
    reached: set[str] = set()
    left = [tip.id for tip in tips]
    while left:
        name = left.pop()
        if name not in reached and name in commits:
            reached.add(name)
            left += commits[name].parents
    lost = {name: each for name, each in commits.items() if name not in reached}
    inner = {parent for commit in lost.values() for parent in commit.parents}
    for name in sorted(lost.keys() - inner):
        text = f"commit {name[:_SHOWN_ID]} that no branch has"
        tips.append(_Tip(name, text, f"refs/lost/{name}"))
    return tips


def _list_named(source: Repository) -> Iterator[_Tip]:
    refs = source.read_refs()
    if stash := refs.pop("refs/stash", ""):
        yield _Tip(stash, "stash", "refs/stash")
    log = os.fsdecode(read_inside(source.common, "logs/refs/stash") or b"")
    older = [line.split(" ", 2)[1:2] for line in log.splitlines()]
    for number, ids in enumerate(reversed(older)):
        if ids and OBJECT_ID.fullmatch(ids[0]) and ids[0] != stash:
            yield _Tip(ids[0], "stash", f"refs/stashes/{number}")
    if OBJECT_ID.fullmatch(head := source.read_head()):
        yield _Tip(head, "HEAD without a branch", "refs/detached/HEAD")
    for name, object_id in sorted(refs.items()):
        start = next((each for each in _KINDS if name.startswith(each)), "")
        kind = f"{_KINDS[start]} {name.removeprefix(start)}" if start else name
        yield _Tip(object_id, path_to_text(kind), name)


def _make_bundle(copy: _Copy, tips: Sequence[_Tip], known: Sequence[str]) -> bytes:
    """Make a bundle for repositories that have the known commits."""
    path = os.path.join(copy.place, "pack")
    write_pack(copy.git, list(dict.fromkeys(tip.id for tip in tips)), known, path)
    version = "# v2 git bundle\n"
    if len(tips[0].id) > 40:
        version = "# v3 git bundle\n@object-format=sha256\n"
    needed = "".join(f"-{each} \n" for each in known)
    refs = "".join(f"{tip.id} {tip.ref}\n" for tip in tips)
    return os.fsencode(f"{version}{needed}{refs}\n") + Path(path).read_bytes()


def _find_folder(copy: _Copy, tree: str) -> str:
    """Find a working folder's stored tree; "" if there is none."""
    if not copy.folder:
        return tree
    line = copy.git.run(
        "rev-parse", "--verify", "--quiet", f"{tree}:{copy.folder}", codes=(0, 1, 128)
    )
    return line.decode().strip()


def _has_files_of(copy: _Copy, tip: str, tree: str) -> bool:
    """Return whether a tree has all files of a commit, unchanged."""
    if copy.new[tip] not in ("commit", "tag"):
        return False
    options = ("-r", "--no-renames", "--name-only", "--diff-filter=a")
    try:
        return not copy.git.run("diff-tree", *options, tip, tree, "--")
    except KilledGitError:
        raise
    except WorkspaceError:  # a tag of something without files
        return False


def _keep_staged(
    store: GitStore,
    copy: _Copy,
    tree: str,
    revisions: Sequence[str],
    entries: dict[str, TreeEntry],
) -> list[str]:
    """Keep contents that an index has and no kept revision does; return their paths."""
    staged = {
        path: entry
        for path, entry in _list_staged(copy).items()
        if copy.new.get(entry.id) == "blob" and _is_plain(path)
    }
    if not staged:
        return []
    kept = {entry.id for entry in store.list_entries(tree).values()} if tree else set[str]()
    if revisions:
        data = "".join(f"{each}\n" for each in revisions).encode()
        command = ("rev-list", "--objects", "--no-object-names", "--stdin")
        kept.update(copy.git.run(*command, data=data).decode().split())
    names: list[str] = []
    for path, entry in staged.items():
        if entry.id not in kept:
            content = copy.git.run("cat-file", "blob", entry.id)
            entries[f"staged/{path}"] = TreeEntry(entry.mode, store.write(content))
            names.append(path)
    return names


def _list_staged(copy: _Copy) -> dict[str, TreeEntry]:
    """List the index entries of a git folder and its worktrees."""
    staged: dict[str, TreeEntry] = {}
    directory = copy.source.directory
    worktrees = _list(directory, "worktrees")
    for number, name in enumerate(["", *(f"worktrees/{each}" for each in worktrees)]):
        place = os.path.join(copy.place, f"index-{number}")
        os.mkdir(place)
        source = replace(copy.source, directory=os.path.join(directory, name).rstrip("/"))
        try:
            source.copy_index(place)
        except FileNotFoundError:
            continue
        git = replace(copy.git, index=os.path.join(place, "index"))
        prefix = f"{name}/" if name else ""
        for line in split_at_nul(git.run("ls-files", "-z", "--stage")):
            facts, _, path = line.partition("\t")
            mode, object_id, stage = facts.split(" ")
            side = f"~{stage}" if stage != "0" else ""
            staged[f"{prefix}{path}{side}"] = TreeEntry(int(mode, 8), object_id)
    return staged


def _is_plain(path: str) -> bool:
    """Return whether a path can be in a tree: the run's own index may hold any text."""
    return not {"", ".", ".."}.intersection(path.split("/"))


def _keep_state(store: GitStore, top: str, path: str, entries: dict[str, TreeEntry]) -> None:
    """Keep the small files recording what an unfinished merge or rebase has done and will do."""
    names = [*_STATES, *_MESSAGES]
    paths = [
        inner
        for name in names
        for inner in ([f"{name}/{each}" for each in _try_list(top, f"{path}/{name}")] or [name])
    ]
    for name in paths[:_MAX_STATE_FILES]:
        data = read_inside(top, f"{path}/{name}")
        if data is not None and _is_plain(name):
            entries[f"state/{name}"] = TreeEntry(REGULAR | 0o644, store.write(data))


def _try_list(top: str, path: str) -> list[str]:
    with suppress(OSError):
        return _list(top, path)
    return []
