"""Children with isolated workspaces change one repository at once; their changes are merged."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.git_projects import hash_folder, read_files, write_files

from mudroom import Isolation, Report, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workspaces.isolated import store
from mudroom._adapters.workspaces.isolated import workspaces as isolated_workspaces
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.events import WorkMerged
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom._core.runs import MergeCounts
from mudroom._replay import replay
from mudroom.permissions.rules import Permissions
from mudroom.testing.invariants import find_violations

PROMPT = "Start the children."
Steps = Sequence[Answer]
NOTHING: Steps = ()


def open_session(project: Path, model: ScriptedModel, **options: Any) -> Session:
    home = str(project.parent / "home")
    settings: dict[str, Any] = {"journal": "memory", "environ": {}, "home": home, **options}
    return Session(model=model, cwd=str(project), **settings)


def make_model(
    children: Mapping[str, Steps],
    *,
    after: Callable[[Request], Answer] | None = None,
    in_turn: bool = False,
    **task: Any,
) -> ScriptedModel:
    """Return a model for a parent that starts an isolated child for each name, all at once.

    Arguments:
        children: answers of each child; it reports "Done." after the last one.
        after: answers of the parent after the children's reports.
        in_turn: true if it starts them one after another.
        task: more arguments of the tool task.
    """
    groups = [[name] for name in children] if in_turn else [list(children)]
    arguments = task or {"isolation": "isolated"}

    def choose_answer(request: Request) -> Answer:
        if request.prompt in children:
            steps = [*children[request.prompt], "Done."]
            return steps[min(request.turn, len(steps) - 1)]
        if request.turn < len(groups):
            return [call("task", prompt=name, **arguments) for name in groups[request.turn]]
        return after(request) if after else "All children reported."

    return ScriptedModel(choose_answer)


async def run_children(
    project: Path,
    children: Mapping[str, Steps],
    *,
    after: Callable[[Request], Answer] | None = None,
    **options: Any,
) -> tuple[Report, ScriptedModel]:
    """Run a parent that starts an isolated child for each name; see `make_model`."""
    model = make_model(children, after=after)
    async with open_session(project, model, **options) as session:
        return await session.run(PROMPT), model


def run_command(command: str) -> Steps:
    """Return the answers of a child that runs a command."""
    return [[call("bash", command=command)]]


def get_results(model: ScriptedModel) -> list[str]:
    """Return the results of the parent's first calls."""
    request = next(each for each in model.requests if each.prompt == PROMPT and each.results)
    return [result.text for result in request.results]


async def test_the_parent_reads_which_files_several_children_changed(project: Path) -> None:
    journal = MemoryJournal()
    wait = f"while ! grep -q alice {project}/a.txt; do sleep 0.02; done"
    children = {
        "first": run_command("sed -i 's/^line 3$/by alice/' a.txt"),
        "second": [
            [call("bash", command=wait)],
            [call("bash", command="sed -i 's/^line 3[0-2]$/by bob/' a.txt; echo b > new.txt")],
        ],
    }
    _, model = await run_children(project, children, journal=journal, sandbox="off")
    first, second = get_results(model)
    assert "[overlap" not in first
    assert "- a.txt: 1.1.1 4, 1.1.2 31-33: can be merged]" in second
    merges = [event async for event in journal.read() if isinstance(event, WorkMerged)]
    assert [[each.path for each in merge.overlaps] for merge in merges] == [[], ["a.txt"]]


async def test_a_child_sees_the_files_as_they_are_at_the_same_path(project: Path) -> None:
    before = hash_folder(project)
    children = {
        "look": [
            [
                call("bash", command="pwd; cat dirty.txt; git log --oneline; git status --short"),
                call("read", file_path=f"{project}/dirty.txt"),
            ]
        ],
        "other": run_command("true"),
    }
    report, model = await run_children(project, children, sandbox="full")
    request = next(r for r in model.requests if r.prompt == "look" and r.results)
    output = request.results[0].text
    assert str(project) in output
    assert "not committed" in output
    assert "first" in output
    assert "A  dirty.txt" in output
    assert "not committed" in request.results[1].text
    assert f"Folder: {project}." in request.system
    assert "[merge: the child changed no file]" in get_results(model)[0]
    assert report.files_changed == ()
    assert hash_folder(project) == before


async def test_a_merge_writes_nothing_while_another_process_merges(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_workspaces, "LOCK_SECONDS", 0.05)
    other = IsolatedWorkspaces(str(project.parent / "other"), str(project), str(project))
    with other.lock_files(""):
        _, model = await run_children(project, {"one": run_command("echo 1 > one.txt")})
    assert "[merge: not done: another program has locked" in get_results(model)[0]
    assert not (project / "one.txt").exists()


async def test_neither_a_protected_file_nor_any_file_in_plan_mode_is_merged(project: Path) -> None:
    before = read_files(project)
    children = {"one": run_command("echo x > c.txt; mkdir -p sub; echo y > sub/.bashrc")}
    _, model = await run_children(project, children)
    assert "(protected)" in get_results(model)[0]
    assert read_files(project) == before
    children = {"one": run_command("echo x > c.txt")}
    await run_children(project, children, permissions=Permissions.of(mode="plan"))
    assert read_files(project) == before


async def test_the_user_confirms_all_files_of_a_merge_at_once(project: Path) -> None:
    requests: list[ApprovalRequest] = []

    class Approver:
        async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
            requests.append(request)
            return ApprovalDecision("one.txt" in request.arguments["files"], "not these")

    children = {
        name: [
            [call("write", file_path=f"{name}.txt", content="x")],
            [call("write", file_path=f"{name}2.txt", content="x")],
        ]
        for name in ("one", "two")
    }
    _, model = await run_children(
        project, children, approver=Approver(), permissions=Permissions(can_ask=True)
    )
    asked = sorted((request.tool, request.arguments["files"]) for request in requests)
    assert asked == [("merge", ["one.txt", "one2.txt"]), ("merge", ["two.txt", "two2.txt"])]
    assert (project / "one2.txt").exists()
    assert not (project / "two.txt").exists()
    result = get_results(model)[1]
    assert "[merge: not done: not these. The work is kept as run 1.1.2. The user can " in result


async def test_the_work_of_a_next_run_that_a_sibling_begins_is_merged(project: Path) -> None:
    steps: dict[str, Steps] = {
        "alice": [
            *run_command("echo 1 > one.txt"),
            "Done.",
            *run_command("echo 2 > two.txt"),
            "Done again.",
        ],
        "bob": [[call("send_message", to="alice", message="Go on.")], "Done."],
        PROMPT: [
            *(
                [call("task", prompt=name, name=name, isolation="isolated")]
                for name in ("alice", "bob")
            ),
            "Wait for alice.",
            "All children reported.",
        ],
    }

    def choose_answer(request: Request) -> Answer:
        return steps[request.prompt][request.turn]

    model = ScriptedModel(choose_answer)
    async with open_session(project, model) as session:
        report = await session.run(PROMPT)
    assert report.ok
    assert (project / "one.txt").read_text() == "1\n"
    assert (project / "two.txt").read_text() == "2\n"


async def test_an_ignored_file_of_the_user_is_a_conflict_before_any_file_is_written(
    project: Path,
) -> None:
    write_files(project, {".gitignore": "secret.txt\n", "secret.txt": "of the user\n"})
    command = "echo > .gitignore; echo child > secret.txt; echo child > another.txt"
    _, model = await run_children(project, {"one": run_command(command)})
    assert "secret.txt (changed-meanwhile)" in get_results(model)[0]
    assert (project / "secret.txt").read_text() == "of the user\n"
    assert (project / ".gitignore").read_text() == "secret.txt\n"
    assert not (project / "another.txt").exists()


async def test_work_that_cannot_be_stored_counts_as_work(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_FILES", 40)
    journal = MemoryJournal()
    children = {"many": run_command("for i in $(seq 60); do echo $i > new$i; done")}
    report, model = await run_children(project, children, journal=journal, sandbox="off")
    (result,) = get_results(model)
    assert "[merge: not done: its files could not be stored: " in result
    assert "commands ran without a sandbox" not in result.partition("[merge: ")[2]
    assert not list(project.glob("new*"))
    assert report.merges == MergeCounts(works=1, landed=0, unmerged={"1.1.1": "refused"})
    events = [event async for event in journal.read()]
    assert not find_violations(events)
    await replay(events)


@pytest.mark.parametrize("becomes", ["file", "link", "nothing"])
async def test_a_folder_that_a_child_empties_is_gone(project: Path, becomes: str) -> None:
    write_files(project, {"old/deep/a": "a", "old/b": "b", "kept/a": "a", "kept/b": "b"})
    new = {"file": "echo new > old", "link": "ln -s kept old", "nothing": "echo new > c"}[becomes]
    children = {
        "first": run_command("rm -r old kept/a"),
        "second": run_command(f"while [ -e {project}/old ]; do sleep 0.02; done; rm -r old; {new}"),
    }
    report, _ = await run_children(
        project, children, sandbox="off", isolation=Isolation(max_returns=0)
    )
    assert report.merges
    assert report.merges.landed == len(children)
    assert not (project / "old").is_dir() or (project / "old").is_symlink()
    assert os.path.lexists(project / "old") == (becomes != "nothing")
    assert (project / "kept/b").exists()


@pytest.mark.parametrize("then", ["", '; echo x > "$PWD"', '; ln -s / "$PWD"'])
async def test_a_child_that_removes_its_folder_has_its_report_and_a_merge_that_is_not_done(
    project: Path, then: str
) -> None:
    before = hash_folder(project)
    steps = run_command(f'rm -rf "$PWD"{then}')
    report, model = await run_children(project, {"one": steps}, sandbox="off")
    (result,) = get_results(model)
    assert result.startswith("Done.")
    assert "[merge: not done: " in result
    assert "its files cannot be read: " in result
    assert report.merges
    assert report.merges.unmerged == {"1.1.1": "refused"}
    assert hash_folder(project) == before
