"""`mudroom workspaces`: lists, shows, compares, applies, writes and drops isolated work."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence

from msgspec import Struct

from ..._adapters.workspaces.isolated import kept_work
from ..._adapters.workspaces.isolated.git_work import BUNDLE
from ..._adapters.workspaces.isolated.kept_work import KeptWork
from ..._core.ports import MergeConflict
from ..._engine.changes.merged_files import (
    ChangedMeanwhileError,
    wait_until_quiet,
    write_merged_files,
)
from ..._platform.time_limits import SystemClock
from ..._projections.safe_text import sanitize, sanitize_line
from ..._session.environments import IsolatedFiles, open_workspace
from ...errors import MudroomError, WorkspaceError
from ..output.json_output import print_json
from ..output.listing import print_entry, print_rows
from .load_settings import load_settings

_MAX_CONFLICTS = 20

# Attempts at one merge: a running session may change files while they are written.
_ATTEMPTS = 3


def _find_home(cwd: str) -> str:
    """Find mudroom's state folder, after removing the work of killed processes."""
    home = load_settings(cwd).home
    kept_work.remove_abandoned(home)
    return home


def print_workspaces(cwd: str, *, all_folders: bool = False, as_json: bool = False) -> None:
    home = _find_home(cwd)
    kept = kept_work.list_kept(home, "" if all_folders else os.path.realpath(cwd))
    if as_json:
        print_json([_to_json(each) for each in kept])
    elif kept:
        print_rows([(each.id, each.state, _describe_files(each)) for each in kept])
        if any(each.state == "not merged" for each in kept):
            print_entry("(mudroom workspaces apply ID merges work into its folder)")
    else:
        print_entry("No run has had an isolated workspace here.")


def print_overlaps(cwd: str, *, as_json: bool) -> None:
    """Print the files changed by more than one run of the last session here."""
    home = _find_home(cwd)
    overlaps = kept_work.list_overlaps(home, os.path.realpath(cwd))
    if as_json:
        print_json(overlaps)
    elif overlaps:
        for each in overlaps:
            print_entry(sanitize_line(each.describe({}), 400))
    else:
        print_entry("No file was changed by several runs with isolated workspaces.")


def _to_json(kept: KeptWork) -> dict[str, object]:
    return {
        "id": kept.id,
        "session": kept.session,
        "run": kept.run_id,
        "source": kept.source,
        "state": kept.state,
        "files": kept.files,
        "only_in_git": kept.only_in_git,
    }


def _describe_files(kept: KeptWork) -> str:
    files = _shorten(kept.files) or "no changed file"
    return f"{files}; only in git: {_shorten(kept.only_in_git)}" if kept.only_in_git else files


def _shorten(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return sanitize_line(", ".join(names[:3]), 100) + more


def print_difference(cwd: str, name: str) -> None:
    home = _find_home(cwd)
    print(sanitize(kept_work.read_difference(home, kept_work.find_kept(home, name))), end="")


class MergeResult(Struct, frozen=True):
    files: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()


def merge_kept(home: str, kept: KeptWork, *, with_ignored: bool = False) -> MergeResult:
    """Merge a run's work into its folder, all or nothing. Raises WorkspaceError.

    `with_ignored`: also merge kept files that git ignores.
    """
    workspaces = kept_work.open_kept(home, kept.session)
    work = workspaces.find_stored(kept.run_id)
    if work is None:
        raise WorkspaceError(f"the work of {kept.id} is not stored: a process still uses it")
    if with_ignored:
        work = kept_work.add_ignored(workspaces, work)
    isolation = IsolatedFiles(lambda: workspaces, "")
    changed = ""
    for attempt in range(_ATTEMPTS):
        # Before the last attempt, give whoever writes the file time to finish.
        if attempt == _ATTEMPTS - 1:
            asyncio.run(wait_until_quiet(SystemClock(), open_workspace(kept.source), changed))
        plan = isolation.plan_merge(work)
        if plan.conflicts:
            return MergeResult(conflicts=plan.conflicts)
        try:
            write_merged_files(plan, isolation)
        except ChangedMeanwhileError as change:
            changed = change.file.path
            continue
        workspaces.mark_merged(kept.run_id)
        return MergeResult(tuple(file.path for file in plan.files))
    return MergeResult(conflicts=(MergeConflict(changed, "changed-meanwhile"),))


def describe_conflicts(conflicts: Sequence[MergeConflict]) -> list[str]:
    shown = conflicts[:_MAX_CONFLICTS]
    lines = [f"  {sanitize_line(each.path, 200)} ({each.kind})" for each in shown]
    if len(conflicts) > len(shown):
        lines.append(f"  and {len(conflicts) - len(shown)} more")
    return lines


def apply_work(cwd: str, name: str, *, with_ignored: bool) -> int:
    home = _find_home(cwd)
    kept = kept_work.find_kept(home, name)
    result = merge_kept(home, kept, with_ignored=with_ignored)
    if result.conflicts:
        print(f"Nothing was changed in {kept.source}: these files conflict with yours.")
        print("\n".join(describe_conflicts(result.conflicts)))
        print(f"See the work with: mudroom workspaces show {kept.id}")
        return 1
    for path in result.files:
        print(f"  {sanitize_line(path, 200)}")
    print(f"Merged {kept.id} into {kept.source}.")
    return 0


def write_git_work(cwd: str, name: str, folder: str | None) -> None:
    """Write work that a run left only in git to a new folder, by default named after the run."""
    home = _find_home(cwd)
    kept = kept_work.find_kept(home, name)
    folder = folder or f"git-{kept.run_id}"
    paths = kept_work.write_git_work(home, kept, folder)
    for path in paths:
        print(f"  {sanitize_line(os.path.join(folder, path), 400)}")
    if bundles := [path for path in paths if os.path.basename(path) == BUNDLE]:
        print("A repository gets the commits of a bundle, each under a name of its own, with:")
        name = kept.run_id.replace("~", "-")  # git allows no "~" in ref names
        for number, path in enumerate(bundles, 1):
            place = sanitize_line(os.path.join(folder, path), 400)
            part = f"/{number}" if number > 1 else ""
            refs = f"refs/*:refs/mudroom/{name}{part}/*"
            print(f"  git fetch --no-tags {shlex.quote(place)} {shlex.quote(refs)}")


def drop_work(cwd: str, names: tuple[str, ...]) -> None:
    home = _find_home(cwd)
    chosen = [kept_work.find_kept(home, name) for name in names]
    # Check all before removing the first.
    for kept in chosen:
        if kept.state == "working":
            raise MudroomError(f"{kept.id} is in use", remedy="Wait until its run has ended.")
    for kept in chosen:
        kept_work.drop_kept(home, kept)
        print(f"dropped: {kept.id}")
