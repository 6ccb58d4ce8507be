"""Work that conflicts goes back to the child that did it, in a folder with both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.test_isolated_children import PROMPT, get_results, open_session

from mudroom import Budget, Isolation, Report
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._cli.output.tree_lines import describe_task
from mudroom._core.agents import FileConflict
from mudroom._core.events import RunStarted, StoredEvent, WorkMerged
from mudroom._core.messages import TextBlock
from mudroom._engine.children.returned_work import make_return_prompt, read_resolutions
from mudroom._projections.run_tree import RunTree
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

BACK = "[From mudroom, not from the user.] Your work is not merged."
SHOW = "cat a.txt; ls"


def change_line(number: int, by: str) -> Answer:
    """Return the call that changes a line."""
    return [call("bash", command=f"sed -i 's/^line {number}$/{by}/' a.txt; echo {by} > {by}.txt")]


def resolve(text: str) -> Answer:
    """Return the call that replaces the lines between conflict marks."""
    return [call("bash", command=f"sed -i '/^<<<<<<< /,/^>>>>>>> /c\\{text}' a.txt")]


async def run_pair(
    project: Path,
    after: Sequence[Answer],
    *,
    parent: Sequence[Answer] = (),
    second: Answer | None = None,
    named: bool = False,
    background: bool = False,
    **options: Any,
) -> tuple[Report, ScriptedModel, list[StoredEvent]]:
    """Run two children that change line 7; the work of "two" conflicts.

    Arguments:
        after: answers of "two" when it has its work back.
        parent: further answers of the parent, after the first reports.
        second: what "two" does in place of a change of line 7.
        named: true for children with names. background: true if the parent waits for neither.
    """

    def choose_answer(request: Request) -> Answer:
        if request.prompt == "one":
            return [change_line(7, "ours"), "Done."][request.turn]
        if request.prompt == "two":
            wait = [
                call("bash", command=f"while ! grep -q ours {project}/a.txt; do sleep 0.02; done")
            ]
            change = second or change_line(7, "theirs")
            return [wait, change, "Done two.", *after][request.turn]
        if request.turn == 0:
            names = {"one": {"name": "alice"}, "two": {"name": "bob"}} if named else {}
            return [
                call(
                    "task",
                    prompt=each,
                    isolation="isolated",
                    background=background,
                    **names.get(each, {}),
                )
                for each in ("one", "two")
            ]
        return [*parent, "All reported.", "All reported."][request.turn - 1]

    model = ScriptedModel(choose_answer)
    journal = MemoryJournal()
    async with open_session(project, model, journal=journal, sandbox="off", **options) as session:
        report = await session.run(PROMPT)
    return report, model, [event async for event in journal.read()]


def read_return_prompt(model: ScriptedModel) -> str:
    """Return what the child reads when its work comes back."""
    request = next(each for each in model.requests if each.prompt == "two" and each.turn > 2)
    (block,) = request.messages[-1].content
    assert isinstance(block, TextBlock)
    return block.text


async def test_a_child_resolves_its_conflict_and_lands_without_a_request_of_the_parent(
    project: Path,
) -> None:
    after = [[call("bash", command=SHOW)], resolve("both"), "Done with both."]
    report, model, events = await run_pair(project, after)
    assert report.ok
    assert sum(request.prompt == PROMPT for request in model.requests) == 2
    lines = (project / "a.txt").read_text().splitlines()
    assert lines[6:9] == ["line 6", "both", "line 8"]
    assert (project / "ours.txt").exists()
    assert (project / "theirs.txt").exists()
    first, second = get_results(model)
    assert "ours.txt" in first
    assert second.startswith("Done with both.")
    assert "are in your files now" in second
    assert "Done two." not in second
    merged = [event for event in events if isinstance(event, WorkMerged)]
    assert [(each.child, each.state, each.returned) for each in merged] == [
        ("1.1.1", "merged", ""),
        ("1.1.2", "conflict", "1.1.2~2"),
        ("1.1.2~2", "merged", ""),
    ]
    assert report.files_changed == ("a.txt", "ours.txt", "theirs.txt")
    await replay(events)
    tree = RunTree.from_events(events)
    assert tree.runs["1.1.2~2"].prompt.startswith("[From mudroom")
    assert describe_task(tree.runs["1.1.2~2"]) == "> task: two"
    # It knows its conversation, and its folder has both sides.
    prompt = read_return_prompt(model)
    assert prompt.startswith(BACK)
    assert "- a.txt (both-modified): base /" in prompt
    request = next(each for each in model.requests if each.prompt == "two" and each.turn > 3)
    shown = request.results[0].text
    begin = shown.index("<<<<<<< the parent's version")
    marked = shown[begin : shown.index(">>>>>>> the child's version")].split("\n")
    assert marked[1] == "ours"
    assert marked[2].startswith("||||||| ")
    assert marked[3:6] == ["line 7", "=======", "theirs"]
    assert {"ours.txt", "theirs.txt", "dirty.txt"} <= set(shown.split())
    briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    assert briefs["1.1.2~2"].continues == "1.1.2"
    assert briefs["1.1.2~2"].call_id == briefs["1.1.2"].call_id


async def test_conflict_marks_do_not_land(project: Path) -> None:
    report, model, _ = await run_pair(project, ["I did nothing."])
    assert report.ok
    assert "<<<<<<<" not in (project / "a.txt").read_text()
    assert not (project / "theirs.txt").exists()
    second = get_results(model)[1]
    assert "a.txt (both-modified)" in second
    assert "kept as run 1.1.2~2" in second
    assert "[evidence: 2 tool calls (bash 2)" in second, "the evidence has all its runs"
    assert report.merges and report.merges.unmerged == {"1.1.2~2": "conflict"}


async def test_a_named_child_that_has_its_work_back_keeps_its_name(project: Path) -> None:
    after = [resolve("both"), "Done with both."]
    parent = [[call("send_message", to="bob", message="Thanks. Say hello.")], "Wait."]

    report, _, events = await run_pair(project, after, parent=parent, named=True)
    assert report.ok
    briefs = [e.brief for e in events if isinstance(e, RunStarted) and e.brief.name == "bob"]
    assert [(each.run_id, each.continues) for each in briefs[:2]] == [
        ("1.1.2", ""),
        ("1.1.2~2", "1.1.2"),
    ]
    await replay(events)


async def test_without_budget_the_conflict_is_told_to_the_parent(project: Path) -> None:
    _, model, events = await run_pair(project, ["Never."], prompt_budget=Budget(children=2))
    second = get_results(model)[1]
    assert "not done, 1 conflict" in second
    assert "could not go back to the child" in second
    await replay(events)


async def test_a_background_child_that_has_its_work_back_is_stopped_by_name(project: Path) -> None:
    started = project / "started"
    wait = [call("bash", command=f"touch {started}; while true; do sleep 0.02; done")]
    until = f"while [ ! -e {started} ]; do sleep 0.02; done"
    parent: list[Answer] = [
        [call("bash", command=until)],
        [call("task_stop", to="bob", how="now")],
        "Wait for bob.",
    ]
    report, model, _ = await run_pair(project, [wait], parent=parent, named=True, background=True)
    assert report.ok
    results = [result for request in model.requests for result in request.results]
    assert any(result.text.startswith("bob is stopping") for result in results)
    assert "theirs" not in (project / "a.txt").read_text()


def test_the_child_reads_its_conflicts_and_not_the_overlaps() -> None:
    text = (
        "[merge: not done, 2 conflicts; all work of the child is kept as run 1.1.2.\n"
        "- a.txt (both-modified): base /x/a, parent /x/b\n- b (type): base /x/c]\n"
        "[overlap: other children changed these files, too.\n- a.txt: 1.1.1 3, 1.1.2 3: conflict]"
    )
    conflicts = (
        FileConflict("a.txt", "both-modified", ("a.txt",), version="both"),
        FileConflict("b", "type", ("b",), version="parent"),
        FileConflict("c", "binary", ("c",)),
    )
    merged = WorkMerged(at=1, child="1.1.2", state="conflict", open_conflicts=conflicts, text=text)
    listed = [line for line in make_return_prompt(merged).splitlines() if line.startswith("- ")]
    assert listed == [
        "- a.txt (both-modified): base /x/a, parent /x/b; your folder has both versions between "
        "conflict marks",
        "- b (type): base /x/c; your folder has the parent's version",
        "- c (binary); your folder has no such file",
    ]


REMOVE = [call("bash", command="rm a.txt; echo theirs > theirs.txt")]


async def test_a_conflict_without_marks_stays_open_if_the_child_only_reports(
    project: Path,
) -> None:
    report, model, events = await run_pair(project, ["REPORT"], second=REMOVE)
    assert "line 6\nours\n" in (project / "a.txt").read_text()
    assert not (project / "theirs.txt").exists()
    second = get_results(model)[1]
    assert "[merge: not done, 1 conflict; your files are unchanged" in second
    assert "- a.txt (modified-deleted): base /" in second
    prompt = read_return_prompt(model)
    line = next(line for line in prompt.splitlines() if line.startswith("- a.txt"))
    assert line.endswith("; your folder has the parent's version")
    assert "resolved: mine PATH (your version)" in prompt
    assert report.merges
    assert (report.merges.works, report.merges.landed) == (2, 1)
    assert not find_violations(events)
    await replay(events)


@pytest.mark.parametrize("side", ["mine", "theirs", "new"])
async def test_a_child_decides_a_conflict_in_its_report(project: Path, side: str) -> None:
    after = [f"Done.\n- `resolved: {side} a.txt`"]
    report, model, events = await run_pair(project, after, second=REMOVE)
    assert (project / "a.txt").exists() == (side != "mine")
    assert (project / "theirs.txt").exists()
    first, second = get_results(model)
    assert "ours.txt" in first
    merged = [event for event in events if isinstance(event, WorkMerged)][-1]
    assert merged.state == "merged"
    if side == "mine":
        assert set(merged.files) == {"a.txt", "theirs.txt"}
        assert merged.left_out == ()
    else:
        assert merged.files == ("theirs.txt",)
        assert merged.left_out == ("a.txt",)
        assert "so these files are as you had them: a.txt]" in second
    assert report.merges
    assert (report.merges.landed, report.merges.after_conflict) == (2, 1)
    assert not find_violations(events)
    await replay(events)


async def test_a_line_that_resolves_nothing_is_named(project: Path) -> None:
    after = ["resolved: ours a.txt\nresolved: mine other.txt"]
    _, model, _ = await run_pair(project, after, second=REMOVE)
    second = get_results(model)[1]
    assert "- resolved: ours a.txt: say mine, theirs or new, then the path" in second
    assert "- resolved: mine other.txt: no file in conflict has this path" in second
    assert "not done, 1 conflict" in second


async def test_two_decisions_about_one_conflict_leave_it_open(project: Path) -> None:
    after = ["resolved: mine a.txt\nresolved: theirs a.txt"]
    _, model, events = await run_pair(project, after, second=REMOVE)
    second = get_results(model)[1]
    assert "- a.txt: decided as mine and theirs; decide once for one conflict" in second
    assert "not done, 1 conflict" in second
    assert (project / "a.txt").exists()
    await replay(events)


def test_a_decision_is_for_all_paths_of_a_conflict() -> None:
    moved = FileConflict("one", "renamed", paths=("one", "text", "two"))
    other = FileConflict("other", "binary", paths=("other",))
    conflicts = [moved, other]
    lines = "resolved: mine two\nresolved: mine one\nresolved: theirs other"
    assert read_resolutions(lines, conflicts, conflicts).sides == {"one": "mine", "other": "theirs"}
    lines = "resolved: mine two\nresolved: theirs one\nresolved: theirs other"
    resolutions = read_resolutions(lines, conflicts, conflicts)
    assert resolutions.sides == {"other": "theirs"}
    assert resolutions.notes == (
        "one, text, two: decided as mine and theirs; decide once for one conflict",
    )


@pytest.mark.parametrize("second", [REMOVE, None], ids=["removed", "text with marks"])
async def test_the_parent_decides_what_the_child_left_open(
    project: Path, second: Answer | None
) -> None:
    parent: list[Answer] = [[call("merge", run="1.1.2~2", how="side", side="child")], "Merged."]
    report, _, events = await run_pair(
        project, ["REPORT"], second=second, parent=parent, isolation=Isolation(each_child=True)
    )
    if second:
        assert not (project / "a.txt").exists()
    else:
        assert "line 6\ntheirs\nline 8\n" in (project / "a.txt").read_text()
    assert (project / "theirs.txt").exists()
    assert report.merges and report.merges.landed == 2
    assert not find_violations(events)


async def decide(
    project: Path, *calls: Answer, after: Sequence[Answer] = (), named: bool = False
) -> tuple[str, list[StoredEvent]]:
    """Let the parent decide with the tool merge, and no work come back by itself.

    Returns the result of the parent's last call, and the events, which replay.
    """
    isolation = Isolation(each_child=True, max_returns=0)
    report, model, events = await run_pair(
        project, after, parent=calls, named=named, isolation=isolation
    )
    assert report.ok
    await replay(events)
    requests = [each for each in model.requests if each.prompt == PROMPT and each.results]
    return requests[-1].results[-1].text, events


def read_project(project: Path) -> tuple[str, bool]:
    """Return the line in conflict, and whether the other file of the child landed."""
    return (project / "a.txt").read_text().splitlines()[7], (project / "theirs.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "expected", "texts"),
    [
        ({"how": "clean"}, ("ours", True), ["are in your files now: theirs.txt]"]),
        ({"how": "side", "side": "child", "paths": ["a.txt"]}, ("theirs", True), []),
        ({"how": "side", "side": "parent", "paths": ["a.txt"]}, ("ours", True), []),
        (
            {"how": "side", "side": "child", "paths": ["b.txt"]},
            ("ours", False),
            ["not done, 1 conflict", "Decide with merge."],
        ),
    ],
)
async def test_the_parent_merges_a_part_or_the_version_of_a_side(
    project: Path, arguments: dict[str, Any], expected: tuple[str, bool], texts: list[str]
) -> None:
    result, _ = await decide(project, [call("merge", run="1.1.2", **arguments)])
    assert read_project(project) == expected
    assert all(text in result for text in texts)


async def test_retry_merges_after_the_parent_changed_its_file(project: Path) -> None:
    change = call("bash", command="sed -i 's/^ours$/line 7/' a.txt")
    await decide(project, [change], [call("merge", run="1.1.2", how="retry")])
    assert read_project(project) == ("theirs", True)


async def test_drop_merges_nothing_and_keeps_the_work(project: Path) -> None:
    drop, retry = (call("merge", run="1.1.2", how=how) for how in ("drop", "retry"))
    result, events = await decide(project, [drop], [retry])
    assert read_project(project) == ("ours", False)
    assert "No work of '1.1.2' waits to be merged" in result
    states = [event.state for event in events if isinstance(event, WorkMerged)]
    assert states == ["merged", "conflict", "dropped"]
    store = next((project.parent / "home/isolated").iterdir())
    assert list(store.rglob("1.1.2")), "the work is kept"


@pytest.mark.parametrize("named", [False, True])
async def test_return_gives_the_child_its_work_back(project: Path, *, named: bool) -> None:
    merge = call("merge", run="bob" if named else "1.1.2", how="return")
    after = [resolve("both"), "Resolved."]
    result, events = await decide(project, [merge], after=after, named=named)
    assert read_project(project) == ("both", True)
    assert result.startswith("Resolved.")
    briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    assert (briefs["1.2.1"].continues, briefs["1.2.1"].name) == ("1.1.2", "bob" if named else "")


async def test_a_session_without_isolated_children_does_not_offer_the_tool(project: Path) -> None:
    model = ScriptedModel(lambda request: "Hello.")
    for isolation in (Isolation(), Isolation(each_child=True)):
        async with open_session(project, model, isolation=isolation) as session:
            await session.run("Hello")
    assert ["merge" in request.tools for request in model.requests] == [False, True]
