"""Events of merges of the work of children that have isolated workspaces."""

from __future__ import annotations

from .event import Event


class WorkMerged(Event, frozen=True, tag="work_merged"):
    """The work of a child with an isolated workspace was merged into the files of the run, or not.

    Arguments:
        child: id of the child run.
        state: "merged", "conflict", "red" (a check failed), "refused" or
            "dropped".
        files: paths of the files that were changed, relative to the workspace.
        conflicts: the files that could not be merged, with the kinds of their conflicts.
        text: what the model of the run reads about it.
        returned: id of the run with which the child gets its work back; "" if it does not.
        base: id of the tree with the run's files at that time. tree: id of the tree with which that
            run begins: both sides, with conflict marks.
        check: command of the check; if it failed, also how, and the end of its output.
        call: place of the call `merge` that asked for it; "" at the end of the child.
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
        timed_out: true if its time limit ended it.
        seconds: duration.
        output: end of its output.
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
        """True if the check succeeded."""
        return self.exit_code == 0 and not self.timed_out
