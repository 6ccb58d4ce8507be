"""What became of the work of isolated workspaces, in words."""

from __future__ import annotations

import pytest

from mudroom import Reason
from mudroom._cli.output.tree_lines import describe_outcome
from mudroom._core.runs import Report, Work
from mudroom._projections.run_tree import RunTree
from mudroom._projections.run_view import RunView, describe_merge
from mudroom.events import CheckFinished, CheckStarted, RunFinished, WorkMerged
from mudroom.testing.event_builders import run_started

WORK = Work("base", "tree", ("a.py", "b.py"))
NO_CHANGES = Work("base", "base")


def finish_child(
    work: Work | None, merge: WorkMerged | None = None, reason: Reason = Reason.GOAL
) -> RunView:
    report = Report(
        text="Done.", reason=reason, run_id="1.1.1", work=work, outputs=dict[str, object]()
    )
    finished = RunFinished(at=2, run="1.1.1", report=report)
    events = [run_started("1"), run_started("1.1.1", "1"), finished, *filter(None, [merge])]
    return RunTree.from_events(events).runs["1.1.1"]


def make_merge(
    state: str, files: tuple[str, ...] = (), conflicts: tuple[str, ...] = ()
) -> WorkMerged:
    kinds = tuple((path, "both-modified") for path in conflicts)
    return WorkMerged(at=3, run="1", child="1.1.1", state=state, files=files, conflicts=kinds)


@pytest.mark.parametrize(
    ("work", "merge", "words"),
    [
        (None, None, ""),
        (WORK, None, ""),
        (WORK, make_merge("merged", ("a.py", "b.py")), "merged 2 files"),
        (NO_CHANGES, make_merge("merged"), "no changes"),
        (WORK, make_merge("conflict", conflicts=("a.py",)), "conflict in 1 file"),
        (WORK, make_merge("refused"), "2 files not merged"),
        (WORK, make_merge("red"), "check failed"),
    ],
)
def test_the_state_of_the_work_of_a_child_is_told_in_words(
    work: Work | None, merge: WorkMerged | None, words: str
) -> None:
    assert describe_merge(finish_child(work, merge)) == words


def test_work_is_shown_as_checking_until_the_check_or_the_merge_ends() -> None:
    tree = RunTree()
    tree.runs["1.1.1"] = finish_child(WORK)
    tree.runs["1"] = RunTree.from_events([run_started("1")]).runs["1"]
    check = CheckStarted(at=3, run="1", command="make", tree="4b1f", children=("1.1.1", "1.1.2"))
    ended = CheckFinished(at=4, run="1", command="make", tree="4b1f", children=check.children)
    for end in (ended, make_merge("merged", ("a.py",))):
        tree.apply(check)
        assert describe_merge(tree.runs["1.1.1"]) == "checking"
        tree.apply(end)
        assert describe_merge(tree.runs["1.1.1"]) != "checking"


def test_a_run_that_works_has_no_state_of_its_work() -> None:
    tree = RunTree.from_events([run_started("1"), run_started("1.1.1", "1")])
    assert describe_merge(tree.runs["1.1.1"]) == ""


def test_the_outcome_of_a_child_names_what_became_of_its_work() -> None:
    assert describe_outcome(finish_child(WORK, make_merge("merged", ("a.py",)))) == (
        "Done, merged 1 file"
    )
    stopped = finish_child(WORK, make_merge("conflict", conflicts=("a.py",)), Reason.MAX_TURNS)
    assert describe_outcome(stopped) == "Turn limit, conflict in 1 file"
