"""Checks: work of children is merged only if a command succeeds with the merged files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.git_projects import hash_folder, write_files
from tests.workspaces.test_isolated_children import (
    PROMPT,
    Steps,
    get_results,
    make_model,
    open_session,
    run_children,
    run_command,
)

from mudroom import Agent, Isolation, Report
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, ScriptedModel, call
from mudroom._cli.output.report import describe_changed_files
from mudroom._core.agents import WorkspaceKind
from mudroom._core.events import (
    CheckFinished,
    RunFinished,
    StoredEvent,
    WorkMerged,
    count_merges,
)
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom._core.runs import MergeCounts
from mudroom._replay import replay
from mudroom.permissions.rules import Permissions

from ..waiting import find_processes, wait_until

CHECK = "! grep -l bad *.txt"
"""A check that fails, and names the files, if a file has the word "bad"."""


def write(name: str, text: str) -> Steps:
    """Return the answers of a child that writes a file."""
    return run_command(f"echo {text} > {name}.txt")


async def run_checked(
    project: Path, children: Mapping[str, Steps], **options: Any
) -> tuple[Report, ScriptedModel, list[StoredEvent]]:
    """Run children with a check; return the events, which replay."""
    journal = MemoryJournal()
    options = {"isolation": Isolation(check=CHECK, max_returns=0), **options}
    report, model = await run_children(project, children, journal=journal, **options)
    events = [event async for event in journal.read()]
    assert await replay(events) == events
    return report, model, events


def list_checks(events: list[StoredEvent]) -> list[tuple[tuple[str, ...], bool]]:
    """Return the runs whose work each check had, and whether it succeeded."""
    finished = [event for event in events if isinstance(event, CheckFinished)]
    return [(event.children, event.is_green) for event in finished]


def list_states(events: list[StoredEvent]) -> dict[str, str]:
    """Return the state of the merge of each child."""
    return {event.child: event.state for event in events if isinstance(event, WorkMerged)}


async def test_work_is_merged_when_the_check_succeeds_with_the_merged_files(
    project: Path,
) -> None:
    before = hash_folder(project / ".git")
    command = "pwd; cat dirty.txt one.txt && echo trace > trace.txt"
    report, model, events = await run_checked(
        project,
        {"one": write("one", "1")},
        isolation=Isolation(check=command, max_returns=0),
        sandbox="full",
    )
    assert report.files_changed == ("one.txt",)
    assert (project / "one.txt").read_text() == "1\n"
    assert not (project / "trace.txt").exists()
    assert hash_folder(project / ".git") == before
    assert "in your files now: one.txt" in get_results(model)[0]
    (check,) = [event for event in events if isinstance(event, CheckFinished)]
    assert (check.command, check.children, check.exit_code) == (command, ("1.1.1",), 0)
    assert check.output == f"{project}\nnot committed\n1"
    assert check.seconds > 0
    assert len(check.tree) == 40


async def test_a_red_check_changes_nothing_and_the_parent_reads_its_output(project: Path) -> None:
    _, model, events = await run_checked(project, {"one": write("one", "bad")})
    (result,) = get_results(model)
    assert "[merge: not done, a check of the merged files failed; your files are" in result
    assert f"{CHECK} (exit code 1, " in result
    assert "one.txt" in result
    assert "kept as run 1.1.1" in result
    assert not (project / "one.txt").exists()
    assert list_states(events) == {"1.1.1": "red"}


async def test_a_child_repairs_its_work_after_a_red_check(project: Path) -> None:
    steps = {
        "one": [
            *write("one", "bad"),
            "Done.",
            [call("bash", command="cat one.txt a.txt; echo good > one.txt")],
        ]
    }
    report, model, events = await run_checked(
        project, steps, isolation=Isolation(check=CHECK, max_returns=1)
    )
    assert (project / "one.txt").read_text() == "good\n"
    assert list_states(events) == {"1.1.1": "red", "1.1.1~2": "merged"}
    returned = next(each for each in model.requests if each.prompt == "one" and each.turn == 2)
    text = str(returned.messages[-1].content)
    assert "Your work is not merged" in text
    assert f"{CHECK} (exit code 1, " in text
    assert report.files_changed == ("one.txt",)
    assert "in your files now: one.txt" in get_results(model)[0]
    assert report.merges == MergeCounts(works=1, landed=1, after_red=1, checks=(CHECK,))
    line = f"Work of children: 1 of 1 landed; 1 after a red check; {CHECK} green"
    assert describe_changed_files(report) == f"Files changed: one.txt. {line}"


def test_the_counts_of_merges_have_each_work_once() -> None:
    def make_merge(child: str, state: str, returned: str = "") -> WorkMerged:
        check = "make test" if state == "merged" else ""
        return WorkMerged(
            at=1, child=child, state=state, files=("a",), returned=returned, check=check
        )

    events = [
        make_merge("1.1.1", "merged"),
        make_merge("1.1.2", "conflict", "1.1.2~2"),
        make_merge("1.1.3", "red", "1.1.3~2"),
        make_merge("1.1.2~2", "merged"),
        make_merge("1.1.3~2", "conflict", "1.1.3~3"),
        make_merge("1.1.3~3", "merged"),
        make_merge("1.1.4", "refused"),
        WorkMerged(at=1, child="1.1.5", state="merged"),
    ]
    counts = count_merges(events)
    assert counts == MergeCounts(4, 3, 2, 1, ("make test",), {"1.1.4": "refused"})
    assert counts
    text = "3 of 4 landed; 2 after a conflict, 1 after a red check; make test green"
    assert counts.describe() == text
    assert count_merges(events[-1:]) is None


async def test_a_check_that_fails_without_the_work_goes_to_the_parent(project: Path) -> None:
    write_files(project, {"user.txt": "bad\n"})
    _, model, events = await run_checked(
        project, {"one": write("one", "1")}, isolation=Isolation(check=CHECK, max_returns=3)
    )
    assert "The check fails without the child's changes, too" in get_results(model)[0]
    assert list_states(events) == {"1.1.1": "red"}
    assert list_checks(events) == [(("1.1.1",), False), ((), False)]


async def test_a_child_can_repair_files_with_which_the_check_fails(project: Path) -> None:
    write_files(project, {"user.txt": "bad\n"})
    _, _, events = await run_checked(project, {"one": write("user", "good")})
    assert list_states(events) == {"1.1.1": "merged"}


async def test_a_check_that_takes_too_long_fails(project: Path) -> None:
    _, model, events = await run_checked(
        project,
        {"one": write("one", "1")},
        isolation=Isolation(check="echo slow; sleep 1000", check_seconds=1, max_returns=0),
    )
    assert "sleep 1000 (timed out, " in get_results(model)[0]
    assert "slow" in get_results(model)[0]
    assert list_states(events) == {"1.1.1": "red"}


async def test_no_process_of_a_check_outlives_it(project: Path) -> None:
    marker = f"sleep 98{os.getpid()}.5"
    await run_checked(
        project,
        {"one": write("one", "1")},
        isolation=Isolation(check=f"{marker} & true", max_returns=0),
    )
    assert (project / "one.txt").exists()
    assert not find_processes(marker)


async def test_a_cancel_ends_the_check(project: Path) -> None:
    marker = f"sleep 97{os.getpid()}.5"
    model = make_model({"one": write("one", "1")})
    async with open_session(project, model, isolation=Isolation(check=marker)) as session:
        running = asyncio.create_task(session.run(PROMPT))
        await wait_until(lambda: find_processes(marker))
        session.runs.cancel()
        report = await running
        assert report.reason == "CANCELLED"
        assert not find_processes(marker)
        assert list(Path(project.parent, "home", "isolated", session.id, "runs").iterdir()) == []
    assert not (project / "one.txt").exists()


async def run_batch(project: Path, children: Mapping[str, Steps]) -> list[StoredEvent]:
    """Run children whose work is merged only when all have reported."""
    journal = MemoryJournal()
    isolation = Isolation(check=CHECK, max_returns=0)
    model = make_model(children)
    async with open_session(project, model, journal=journal, isolation=isolation) as session:
        trees = session._require_open().resources.services.environments.shared.trees
        assert trees
        async with trees.lock, asyncio.timeout(60):
            running = asyncio.create_task(session.run(PROMPT))
            waiters: Any = vars(trees.lock)
            while len(waiters["_waiters"] or ()) < len(children):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await running).ok
    events = [event async for event in journal.read()]
    assert await replay(events) == events
    ended = [event.run for event in events if isinstance(event, RunFinished)]
    assert set(ended[: len(children)]) == list_runs(*range(1, len(children) + 1))
    return events


def list_runs(*numbers: int) -> set[str]:
    return {f"1.1.{number}" for number in numbers}


async def test_work_that_waits_is_merged_with_one_check(project: Path) -> None:
    events = await run_batch(project, {f"c{number}": write(f"f{number}", "1") for number in "1234"})
    ((children, is_green),) = list_checks(events)
    assert (set(children), is_green) == (list_runs(1, 2, 3, 4), True)
    assert set(list_states(events).values()) == {"merged"}
    assert all((project / f"f{number}.txt").exists() for number in "1234")


async def test_bisection_finds_the_work_that_makes_a_check_fail(project: Path) -> None:
    children = {
        f"c{number}": write(f"f{number}", "bad" if number == 4 else "good")
        for number in range(1, 8)
    }
    events = await run_batch(project, children)
    states = list_states(events)
    assert [run for run, state in states.items() if state != "merged"] == ["1.1.4"]
    assert states["1.1.4"] == "red"
    for number in range(1, 8):
        assert (project / f"f{number}.txt").exists() == (number != 4)
    checks = list_checks(events)
    assert len(checks) <= 6
    trees = [event.tree for event in events if isinstance(event, CheckFinished)]
    assert len(set(trees)) == len(trees)


async def test_several_works_that_fail_are_all_found(project: Path) -> None:
    children = {
        f"c{number}": write(f"f{number}", "bad" if number in (2, 3, 5) else "good")
        for number in range(1, 6)
    }
    states = list_states(await run_batch(project, children))
    assert {run for run, state in states.items() if state == "red"} == list_runs(2, 3, 5)
    assert {run for run, state in states.items() if state == "merged"} == list_runs(1, 4)


async def test_work_that_conflicts_with_work_of_its_batch_waits_for_the_outcome(
    project: Path,
) -> None:
    children = {"c1": write("a", "bad"), "c2": write("a", "bad"), "c3": write("a", "good")}
    states = list_states(await run_batch(project, children))
    assert list(states.values()).count("merged") == 1
    assert states["1.1.3"] == "merged"
    assert (project / "a.txt").read_text() == "good\n"


async def test_a_check_never_runs_twice_with_the_same_files(project: Path) -> None:
    commands = {"add": "echo 1 > one.txt", "remove": "rm one.txt", "again": "echo 1 > one.txt"}
    model = make_model({name: run_command(each) for name, each in commands.items()}, in_turn=True)
    journal = MemoryJournal()
    isolation = Isolation(check=CHECK)
    async with open_session(project, model, journal=journal, isolation=isolation) as session:
        assert (await session.run(PROMPT)).ok
    events = [event async for event in journal.read()]
    assert [runs for runs, _ in list_checks(events)] == [("1.1.1",), ("1.2.1",)]
    assert list(list_states(events).values()) == ["merged"] * 3
    assert (project / "one.txt").exists()


async def test_files_that_change_during_the_check_are_merged_and_checked_again(
    project: Path,
) -> None:
    write_files(project, {"lines.txt": "1\n\n\n\n\n\n\n\n\n2\n"})
    gate = project.parent / "gate"
    command = f"! grep -l bad *.txt && {{ test -e {gate} || sleep 0.4; }}"
    journal = MemoryJournal()

    def type_text(event: object) -> None:
        if type(event).__name__ == "CheckStarted" and not gate.exists():
            text = (project / "lines.txt").read_text().replace("2", "two")
            (project / "lines.txt").write_text(text)
            gate.touch()

    model = make_model({"one": run_command("sed -i s/1/one/ lines.txt")})
    isolation = Isolation(check=command)
    async with open_session(project, model, journal=journal, isolation=isolation) as session:
        session.watch(type_text)
        assert (await session.run(PROMPT)).ok
    assert (project / "lines.txt").read_text() == "one\n\n\n\n\n\n\n\n\ntwo\n"
    events = [event async for event in journal.read()]
    assert len(list_checks(events)) == 2


class Asked:
    """An approver that remembers the requests."""

    def __init__(self, *, allows: bool) -> None:
        self.allows = allows
        self.requests: list[tuple[str, Any]] = []

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        self.requests.append((request.tool, request.arguments.get("command")))
        return ApprovalDecision(self.allows or request.tool != "bash", "no commands")


async def test_a_rule_can_deny_a_check(project: Path) -> None:
    rules = Permissions.of(deny=["Bash(make:*)"])
    _, model, _ = await run_checked(
        project,
        {"one": write("one", "1")},
        isolation=Isolation(check="make test", max_returns=0),
        permissions=rules,
    )
    assert "the check 'make test' may not run" in get_results(model)[0]
    assert not (project / "one.txt").exists()


@pytest.mark.parametrize("allows", [True, False])
async def test_the_check_of_an_agent_is_asked_about_once(project: Path, *, allows: bool) -> None:
    approver = Asked(allows=allows)
    agent = Agent(
        name="writer", description="Writes.", workspace=WorkspaceKind.ISOLATED, check="true"
    )
    children: dict[str, Steps] = {
        name: [[call("write", file_path=f"{name}.txt", content="x")]] for name in ("one", "two")
    }
    model = make_model(children, in_turn=True, agent="writer")
    rules = Permissions.of(ask=["Bash(true)"])
    options: dict[str, Any] = {"agents": [agent], "approver": approver, "permissions": rules}
    async with open_session(project, model, **options) as session:
        await session.run(PROMPT)
    commands = [request for request in approver.requests if request[0] == "bash"]
    assert commands == [("bash", "true")] * (1 if allows else 2)
    assert (project / "one.txt").exists() == allows
    assert (project / "two.txt").exists() == allows


async def test_the_check_of_the_user_needs_no_confirmation(project: Path) -> None:
    approver = Asked(allows=False)
    rules = Permissions.of(ask=["Bash(true)"])
    await run_checked(
        project,
        {"one": [[call("write", file_path="one.txt", content="x")]]},
        isolation=Isolation(check="true"),
        approver=approver,
        permissions=rules,
    )
    assert (project / "one.txt").exists()
    assert not [request for request in approver.requests if request[0] == "bash"]


async def test_a_check_that_no_child_uses_is_named_once(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Answer] = []
    for name in ("one.txt", "two.txt"):
        answers += [[call("write", file_path=name, content="x")], "done"]
    isolation = Isolation(check="true")
    async with open_session(project, ScriptedModel(answers), isolation=isolation) as session:
        with caplog.at_level("WARNING", "mudroom"):
            await session.run(PROMPT)
            await session.run(PROMPT)
    assert [record.getMessage() for record in caplog.records] == [
        "the check 'true' did not run: no child with an isolated workspace changed files "
        "(--isolate gives one to each child that may change files)"
    ]
