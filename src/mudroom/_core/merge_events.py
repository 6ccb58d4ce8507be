"""Events about merging the work of children in isolated workspaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from .event import Event
from .file_conflicts import FileConflict
from .runs import MergeCounts


class Overlap(Struct, frozen=True, omit_defaults=True):
    """A file that at least two runs changed.

    Arguments:
        path: relative to the folder.
        runs: ids of the runs that changed it.
        kind: "both-modified", "both-added", "modified-deleted", "binary" or "type".
        lines: ranges of changed lines by run, first and last, counted in that run's file.
        is_mergeable: true if git can merge all changes of the file.
    """

    path: str
    runs: tuple[str, ...]
    kind: str
    lines: dict[str, tuple[tuple[int, int], ...]] = {}
    is_mergeable: bool = False

    def describe(self, names: Mapping[str, str]) -> str:
        """Describe the overlap in one line.

        Arguments:
            names: names of runs by id; a run without a name is shown by its id.

        Example:
            src/config.py: alice 10-24, bob 18-19: conflict
        """
        parts = [f"{names.get(run, run)}{_format_ranges(self.lines.get(run))}" for run in self.runs]
        result = "can be merged" if self.is_mergeable else f"conflict ({self.kind})"
        return f"{self.path}: {', '.join(parts)}: {result}"


def _format_ranges(ranges: tuple[tuple[int, int], ...] | None) -> str:
    if not ranges:
        return ""
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return " " + "+".join(texts)


class WorkMerged(Event, frozen=True, tag="work_merged"):
    """The outcome of merging a child's isolated work into the files of the run.

    Arguments:
        child: id of the child run.
        state: "merged", "conflict", "red" (a check failed), "refused" or "dropped".
        files: paths of the changed files, relative to the workspace.
        conflicts: the files that could not be merged, with the kinds of their conflicts.
        text: what the model of the run reads about it.
        returned: id of the child's next run, which gets the work back; "" if none does.
        base: id of the tree with the run's files at that time.
        tree: id of the tree that next run starts with: both sides, with conflict marks.
        check: command of the check; if it failed, also how and the end of its output.
        call: place of the call of `merge` that asked for it; "" when the child ended.
        overlaps: files that other children changed as well.
        open_conflicts: the same conflicts, with what the child needs to decide them.
        own: id of the tree with the child's version of these files.
        left_out: paths the child changed but that keep the run's version, because the child or a
            call of `merge` decided so.
        only_in_git: see `MergeCounts`.
    """

    child: str
    state: str
    files: tuple[str, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    text: str = ""
    returned: str = ""
    base: str = ""
    tree: str = ""
    check: str = ""
    call: str = ""
    overlaps: tuple[Overlap, ...] = ()
    open_conflicts: tuple[FileConflict, ...] = ()
    own: str = ""
    left_out: tuple[str, ...] = ()
    only_in_git: tuple[str, ...] = ()


class CheckStarted(Event, frozen=True, tag="check_started"):
    """A check of merged files begins.

    Arguments:
        command: the bash command.
        tree: id of the tree with the files.
        children: ids of the child runs whose work is in the tree; () for the files without it.
    """

    command: str
    tree: str
    children: tuple[str, ...] = ()


class CheckFinished(Event, frozen=True, tag="check_finished"):
    """A check of merged files has ended.

    Arguments:
        command, tree, children: see CheckStarted.
        exit_code: exit code of the command.
        timed_out: true if the time limit ended it.
        seconds: duration.
        output: the end of its output.
    """

    command: str
    tree: str
    children: tuple[str, ...] = ()
    exit_code: int = 0
    timed_out: bool = False
    seconds: float = 0.0
    output: str = ""

    @property
    def is_green(self) -> bool:
        """True if the command succeeded within its time limit."""
        return self.exit_code == 0 and not self.timed_out


def count_merges(events: Iterable[WorkMerged]) -> MergeCounts | None:
    """Count what became of the work in the events; None if there was none.

    Work that came back to its child counts once.
    """
    first_runs: dict[str, str] = {}
    works: dict[str, list[WorkMerged]] = {}
    for event in events:
        first = first_runs.get(event.child, event.child)
        if event.returned:
            first_runs[event.returned] = first
        works.setdefault(first, []).append(event)
    if not works:
        return None  # most runs have no isolated children
    counted = [merges for merges in works.values() if any(map(_has_changes, merges))]
    # The call that drops work says nothing of its git.
    events_with_git = (event for merges in works.values() for event in merges if event.only_in_git)
    only_in_git = {event.child: event.only_in_git for event in events_with_git}
    if not counted and not only_in_git:
        return None
    landed = [merges for merges in counted if merges[-1].state == "merged"]
    states = [{event.state for event in merges} for merges in landed]
    return MergeCounts(
        works=len(counted),
        landed=len(landed),
        after_conflict=sum("conflict" in each for each in states),
        after_red=sum("red" in each for each in states),
        unmerged={
            merges[-1].child: merges[-1].state for merges in counted if merges[-1].state != "merged"
        },
        checks=tuple(dict.fromkeys(filter(None, (merges[-1].check for merges in landed)))),
        only_in_git=only_in_git,
    )


def _has_changes(event: WorkMerged) -> bool:
    return event.state != "merged" or bool(event.files)


def describe_merges(counts: MergeCounts) -> str:
    """Describe the counts: "6 of 6 landed; 2 after a conflict; make test green"."""
    parts = [f"{counts.landed} of {counts.works} landed"] if counts.works else []
    after = {"a conflict": counts.after_conflict, "a red check": counts.after_red}
    if any(after.values()):
        parts.append(", ".join(f"{count} after {what}" for what, count in after.items() if count))
    if counts.checks:
        parts.append(f"{', '.join(counts.checks)} green")
    if counts.only_in_git:
        parts.append(f"only in git: {', '.join(counts.only_in_git)}")
    return "; ".join(parts)
