"""Work of all sessions' isolated workspaces: its overlaps, and the clean-up after kills."""

from __future__ import annotations

import fcntl
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...._core.listings import count_noun
from ...._core.runs import GitWork, Overlap, Work, make_sort_key
from ...._platform.open_beneath import open_new_file
from ...._platform.paths import path_to_text
from ...._platform.regular_files import is_binary
from ...._platform.scratch_dirs import remove_tree
from ....errors import UnknownName, WorkspaceError
from .._listing import FOLDER_FLAGS, hold_open
from .git_store import GitStore
from .merge import merge_trees
from .store import FILE_TYPE, REGULAR, UNFINISHED, FileChange, measure_folder
from .workspaces import REMOVED, SOURCE_FILE, IsolatedWorkspaces


class KeptWork(Struct, frozen=True):
    """Work of one run.

    Arguments:
        source: the folder the workspace began as a copy of.
        state: "merged", "not merged" or "working" (a process uses the workspace now).
        files: paths of the files that differ from the start.
        only_in_git: names of commits, stashes and staged files that the work's files lack.
    """

    session: str
    run_id: str
    source: str
    state: str
    files: tuple[str, ...] = ()
    only_in_git: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Session and run: "1f2a3b4c/1.2.1"."""
        return f"{self.session[:8]}/{self.run_id}"


def get_isolated_folder(home: str) -> Path:
    return Path(home, "isolated")


def open_kept(home: str, session: str) -> IsolatedWorkspaces:
    folder = get_isolated_folder(home) / session
    try:
        source = os.fsdecode((folder / SOURCE_FILE).read_bytes())
    except OSError as error:
        raise WorkspaceError(
            f"the isolated workspaces of session {session} cannot be opened: {error.strerror}"
        ) from error
    return IsolatedWorkspaces(str(folder), source, home)


def list_kept(home: str, source: str = "") -> list[KeptWork]:
    """List kept work, of the folder `source` if given. Raises WorkspaceError without git."""
    kept: list[KeptWork] = []
    for folder in _list_sessions(home):
        try:
            workspaces = open_kept(home, folder.name)
        except WorkspaceError:
            continue
        if source in ("", workspaces.source) and workspaces.has_store:
            workspaces.require_git()
            with suppress(WorkspaceError):  # a damaged store must not hide the others
                kept += _list_session(folder.name, workspaces)
    return kept


def _list_session(session: str, workspaces: IsolatedWorkspaces) -> Iterator[KeptWork]:
    kept = workspaces.store.list_kept()
    working = workspaces.list_folders()
    for run_id in sorted({*kept, *working}, key=make_sort_key):
        record = kept.get(run_id)
        state = "merged" if record and record.is_merged else "not merged"
        if run_id in working:
            state = "working"
        files = record.work.files if record else ()
        git = record.work.git if record else None
        only_in_git = (*git.only, *git.unread) if git else ()
        yield KeptWork(session, run_id, workspaces.source, state, files, only_in_git)


class KeptSize(Struct, frozen=True):
    """Disk use of all sessions' isolated workspaces; `size` in bytes."""

    folder: str
    sessions: int
    size: int


def measure_kept(home: str) -> KeptSize:
    folders = _list_sessions(home)
    size = sum(measure_folder(str(folder)) for folder in folders)
    return KeptSize(str(get_isolated_folder(home)), len(folders), size)


def find_kept(home: str, name: str) -> KeptWork:
    """Find work by its id; the session may be shortened. Raises UnknownName."""
    session, _, run_id = name.partition("/")
    kept = list_kept(home)
    matching = [each for each in kept if each.session.startswith(session) and each.run_id == run_id]
    if session and len(matching) == 1:
        return matching[0]
    raise UnknownName("workspace", name, [each.id for each in kept])


def list_overlaps(home: str, source: str) -> list[Overlap]:
    """List files changed by several runs in the last session with work of a folder."""
    kept = list_kept(home, source)
    if not kept:
        return []
    folder = get_isolated_folder(home)
    last = max((each.session for each in kept), key=lambda name: (folder / name).stat().st_mtime)
    workspaces = open_kept(home, last)
    works = {run: record.work for run, record in workspaces.store.list_kept().items()}
    return find_overlaps(workspaces.store, works)


def drop_kept(home: str, kept: KeptWork) -> None:
    open_kept(home, kept.session).drop(kept.run_id)


def read_difference(home: str, kept: KeptWork) -> str:
    workspaces = open_kept(home, kept.session)
    store = workspaces.store
    work = _require_work(workspaces, kept)
    text = store.read_difference(work.base, work.tree)
    if ignored := work.ignored:
        text += (
            f"\n# {count_noun(ignored.count, 'file')} that git ignores, {ignored.kept} of them "
            f"kept: mudroom workspaces apply --ignored {kept.id}\n"
        )
        if ignored.tree:
            text += store.read_difference(store.empty_tree, ignored.tree)
    if git := work.git:
        text += "".join(f"\n# {line}" for line in _describe_git_work(git, kept.id)) + "\n"
    return text


def _describe_git_work(git: GitWork, name: str) -> Iterator[str]:
    for each in git.only:
        yield f"only in its git: {each}"
    for each in git.commits:
        yield f"kept as a commit, too: {each}"
    for each in git.unread:
        yield f"not read, so its folder stays at {git.folder}: {each}"
    if git.tree:
        yield f"written into a new folder by: mudroom workspaces git {name}"


def write_git_work(home: str, kept: KeptWork, folder: str) -> list[str]:
    """Write work a run left only in git into a new folder; return the paths of its files."""
    workspaces = open_kept(home, kept.session)
    work = _require_work(workspaces, kept)
    if work.git is None or not work.git.tree:
        place = work.git.folder if work.git else ""
        raise WorkspaceError(
            f"nothing of the git of {kept.id} is kept",
            remedy=f"Look into {place}." if place else f"See mudroom workspaces show {kept.id}.",
        )
    store = workspaces.store
    entries = store.list_entries(work.git.tree)
    try:
        os.mkdir(folder)
        with hold_open(os.open(folder, FOLDER_FLAGS | os.O_CLOEXEC)) as top:
            for path, entry in entries.items():
                with open(open_new_file(top, path, 0o666), "wb") as file:
                    file.write(store.read(entry.id))
    except OSError as error:
        raise WorkspaceError(
            f"the git of {kept.id} cannot be written: {error.strerror}",
            where=folder,
            remedy="Name a folder that does not exist yet, where you may write.",
        ) from error
    return list(entries)


def add_ignored(workspaces: IsolatedWorkspaces, work: Work) -> Work:
    """Add kept ignored files to the work. Raises WorkspaceError if there are none."""
    if work.ignored is None or not work.ignored.tree:
        raise WorkspaceError(
            "no ignored files are kept with this work", remedy="Leave out --ignored."
        )
    store = workspaces.store
    kept = store.list_entries(work.ignored.tree)
    tree = store.write_tree({**store.list_entries(work.tree), **kept})
    files = tuple(dict.fromkeys((*work.files, *map(path_to_text, kept))))
    return replace(work, tree=tree, files=files)


def _require_work(workspaces: IsolatedWorkspaces, kept: KeptWork) -> Work:
    work = workspaces.find_stored(kept.run_id)
    if work is None:
        raise WorkspaceError(
            f"the work of {kept.id} is not stored yet",
            remedy="Wait until its run has ended, or start mudroom again.",
        )
    return work


def remove_abandoned(home: str) -> int:
    """Clean up after killed processes: end their landings and store the work in their folders.

    Returns the number of folders removed. Those that cannot be stored stay.
    """
    return sum(_remove_of_session(home, folder) for folder in _list_sessions(home))


def _remove_of_session(home: str, folder: Path) -> int:
    rests = (folder.glob(pattern) for pattern in ("runs/*", "landings/*", f"*{UNFINISHED}"))
    if not any(any(rest) for rest in rests):
        return 0
    with hold_open(os.open(folder, FOLDER_FLAGS | os.O_CLOEXEC)) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _store_and_remove(home, folder)
        except (OSError, WorkspaceError):
            return 0  # in use by a process, or its files cannot be stored now: they stay


def _store_and_remove(home: str, folder: Path) -> int:
    for rest in (folder / "runs").glob(f"*{REMOVED}"):
        remove_tree(rest)
    workspaces = open_kept(home, folder.name)
    workspaces.is_locked_by_caller = True
    workspaces.settle_all()
    count = 0
    for run_id in workspaces.list_folders():
        workspaces.store_work(run_id)
        workspaces.remove(run_id)
        count += 1
    workspaces.store.remove_unfinished()
    for rest in folder.glob("runs/*"):  # incomplete ones
        remove_tree(rest)
    return count


def _list_sessions(home: str) -> list[Path]:
    folder = get_isolated_folder(home)
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise WorkspaceError(
            f"isolated workspaces cannot be listed: {error.strerror}",
            where=str(folder),
            remedy="Check its permissions, or set MUDROOM_HOME to another folder.",
        ) from error


_MAX_PATHS = 100  # files in one report whose lines are compared

Lines = Sequence[bytes]


class Match(NamedTuple):
    old: int
    new: int
    length: int


def find_overlaps(
    store: GitStore, works: Mapping[str, Work], conflicts: Mapping[str, str] | None = None
) -> list[Overlap]:
    """List the files several runs changed. Without `conflicts`, merges each pair of works."""
    changes: dict[str, dict[str, FileChange]] = {}
    for run, work in works.items():
        for change in store.list_changes(work.base, work.tree):
            changes.setdefault(change.path, {})[run] = change
    shared = {path: by_run for path, by_run in changes.items() if len(by_run) > 1}
    if conflicts is None:
        runs = dict.fromkeys(run for by_run in shared.values() for run in by_run)
        conflicts = {
            conflict.path: conflict.kind
            for first, second in combinations([works[run] for run in runs], 2)
            for conflict in merge_trees(store, first.base, first.tree, second.tree).conflicts
        }
    overlaps: list[Overlap] = []
    for number, (path, by_run) in enumerate(sorted(shared.items())):
        is_compared = number < _MAX_PATHS
        lines = {
            run: _list_changed_lines(store, change)
            for run, change in by_run.items()
            if is_compared and change.status == "modified"
        }
        kind = conflicts.get(path) or _name_kind([change.status for change in by_run.values()])
        is_mergeable = path not in conflicts
        overlaps.append(Overlap(path, tuple(by_run), kind, lines, is_mergeable=is_mergeable))
    return overlaps


def _list_changed_lines(store: GitStore, change: FileChange) -> tuple[tuple[int, int], ...]:
    if change.mode & FILE_TYPE != REGULAR:
        return ()
    old, new = (store.read(side) for side in (change.before, change.after))
    if is_binary(old, new):
        return ()
    ranges: list[tuple[int, int]] = []
    place = at = 0
    lines = new.splitlines()
    old_lines = old.splitlines()
    for first, start, count in [
        *match_lines(old_lines, lines),
        Match(len(old_lines), len(lines), 0),
    ]:
        if start > at:
            ranges.append((at + 1, start))
        elif first > place:  # lines were removed in front of this one
            ranges.append((at, at))
        place, at = first + count, start + count
    return tuple(ranges)


def _name_kind(statuses: list[str]) -> str:
    if "deleted" in statuses:
        return "modified-deleted"
    if "type" in statuses:
        return "type"
    return "both-added" if set(statuses) == {"added"} else "both-modified"


def match_lines(old: Lines, new: Lines) -> Iterator[Match]:
    """Yield the equal lines of two texts, in order.

    Lines that are unique in both texts are matched first, the gaps between them with difflib:
    difflib alone takes minutes for long texts with many equal lines.
    """
    shortest = min(len(old), len(new))
    start = 0
    while start < shortest and old[start] == new[start]:
        start += 1
    end = 0
    while end < shortest - start and old[-1 - end] == new[-1 - end]:
        end += 1
    if start:
        yield Match(0, 0, start)
    yield from _match_inner(old, new, start, end)
    if end:
        yield Match(len(old) - end, len(new) - end, end)


def _match_inner(old: Lines, new: Lines, start: int, end: int) -> Iterator[Match]:
    anchors = list(_find_anchors(old[start : len(old) - end], new[start : len(new) - end]))
    places = [(first + start, second + start) for first, second in anchors]
    at_old = at_new = start
    for one, other in [*places, (len(old) - end, len(new) - end)]:
        matcher = SequenceMatcher(None, old[at_old:one], new[at_new:other])
        for first, second, count in matcher.get_matching_blocks():
            if count:
                yield Match(first + at_old, second + at_new, count)
        if one < len(old) - end:
            yield Match(one, other, 1)
        at_old, at_new = one + 1, other + 1


def _find_anchors(old: Lines, new: Lines) -> Iterator[tuple[int, int]]:
    """Yield the places of lines that are unique in both texts, as many as are in the same order."""
    counts_old, counts_new = Counter(old), Counter(new)
    places = {line: place for place, line in enumerate(new) if counts_new[line] == 1}
    pairs = [
        (place, places[line])
        for place, line in enumerate(old)
        if counts_old[line] == 1 and line in places
    ]
    ends: list[int] = []  # smallest last place of an increasing sequence, by its length
    last: list[int] = []  # the pairs that these are
    before: list[int] = []  # by pair: the one before it
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
    chain: list[int] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(number)
        number = before[number]
    yield from (pairs[number] for number in reversed(chain))
