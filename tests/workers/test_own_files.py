"""Children on machines that do not see the session's folder, and their files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mudroom import Budget, Mode, Reason
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.workers.remote import tree_transfer
from mudroom._core.events import RunStarted
from mudroom.errors import WorkspaceError
from mudroom.permissions.rules import Permissions, Verdict, parse_rules
from mudroom.testing.invariants import find_violations

from ..workspaces.git_projects import run_git, write_files
from .far_place import FarTransport, MixedTransport, Place, hide_files, join_results, make_family


async def test_a_child_that_reads_works_on_a_snapshot(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            return [
                call("read", path="a.txt"),
                call("read", path=str(place.project / "b.txt")),
                call("glob", pattern="**/*"),
            ]
        return f"saw {join_results(request)}"

    report = await place.run(make_family("reader", child, 2))
    assert report.reason is Reason.GOAL
    assert report.text.count("\tchanged") == 2 and report.text.count("two") == 2
    assert "secret" not in report.text
    assert caplog.text.count("does not see the folder of the session") == 1
    started = [each for each in await place.list_events(RunStarted) if each.brief.parent]
    assert all(each.brief.workspace.is_snapshot for each in started)
    assert len(list(place.folder.glob("node/nodes/*/*/snapshots/*/snapshot.json"))) == 1
    assert b"do not send" not in b"".join(
        path.read_bytes() for path in (place.folder / "node").rglob("*") if path.is_file()
    )


async def test_files_that_a_rule_hides_do_not_travel(place: Place) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            return call("bash", command="ls; rm a.txt")
        return join_results(request)

    rules = parse_rules(["Read(./b.txt)", "Read(./keys/**)"], Verdict.DENY)
    write_files(place.project, {"keys/one": "a key that is not ignored\n"})
    report = await place.run(
        make_family("writer", child), permissions=Permissions(rules=rules, mode=Mode.BYPASS)
    )
    assert "a.txt" in report.text
    assert not [word for word in ("b.txt", "keys") if word in report.text]
    assert sorted(path.name for path in place.project.iterdir()) == [
        ".git",
        ".gitignore",
        "b.txt",
        "keys",
        "secret.txt",
    ]


async def test_an_agent_in_plan_mode_works_on_a_snapshot(place: Place) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            return [call("read", path="a.txt"), call("write", path="a.txt", content="no")]
        return join_results(request)

    report = await place.run(make_family("planner", child))
    assert "changed" in report.text
    assert (place.project / "a.txt").read_text() == "changed\n"


async def test_the_work_of_isolated_children_comes_back_and_is_merged(place: Place) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            number = request.prompt.split()[-1]
            return call("bash", command=f"cat a.txt; echo new > {number}.txt; rm -f b.txt; pwd")
        return join_results(request)

    report = await place.run(make_family("writer", child, 3), worker="process:2")
    assert report.text.count("changed\n/") == 3
    assert str(place.project) not in report.text.replace(str(place.folder / "node"), "")
    names = sorted(path.name for path in place.project.iterdir())
    assert names == [".git", ".gitignore", "0.txt", "1.txt", "2.txt", "a.txt", "secret.txt"]
    assert report.merges and report.merges.landed == 3
    events = [event async for event in place.journal.read()]
    assert find_violations(events) == []


async def test_files_that_a_rule_hides_do_not_travel_with_a_conflict(place: Place) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            write_files(place.project, {"a.txt": "by the user\n"})
            return call("bash", command="echo by the child > a.txt")
        if request.turn == 2:
            return call("bash", command="ls > seen.txt; echo both > a.txt")
        return "done"

    write_files(place.project, {"keys/one": "a key that is not ignored\n"})
    rules = parse_rules(["Read(./keys/**)"], Verdict.DENY)
    permissions = Permissions(rules=rules, mode=Mode.BYPASS)
    async with place.open(make_family("writer", child), permissions=permissions) as session:
        files = hide_files(session, place.folder)._files
        report = await session.run("PARENT")
        tree = files.transfers.trees.store_files()
        with pytest.raises(WorkspaceError, match="no run of another machine begins with"):
            await files.transfers.read_tree(session, tree, (), 0)
    assert report.reason is Reason.GOAL
    assert (place.project / "a.txt").read_text() == "both\n"
    assert "keys" not in (place.project / "seen.txt").read_text()
    assert (place.project / "keys/one").read_text() == "a key that is not ignored\n"
    [store] = place.folder.glob("node/nodes/*/*/store.git")
    key = run_git(place.project, "hash-object", "keys/one").strip()
    objects = run_git(store, "cat-file", "--batch-all-objects", "--batch-check")
    assert "blob" in objects and key not in objects


async def test_a_copy_is_made_of_the_files_that_were_sent(place: Place) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            return call("bash", command="echo x >> a.txt; cat a.txt")
        return join_results(request)

    report = await place.run(make_family("copier", child))
    assert "changed\nx" in report.text
    assert (place.project / "a.txt").read_text() == "changed\n"
    assert not list(place.folder.glob("node/nodes/*/*/runs/*"))


async def test_grandchildren_work_on_the_files_of_their_parent(place: Place) -> None:
    def child(request: Request) -> Answer:
        if request.prompt == "GRANDCHILD":
            if not request.turn:
                return call("bash", command="echo deep > deep.txt; cat own.txt")
            return join_results(request)
        if not request.turn:
            return call("write", path="own.txt", content="own\n")
        if request.turn == 1:
            return [
                call("task", agent="writer", prompt="GRANDCHILD"),
                call("task", agent="reader", prompt="GRANDCHILD"),
            ]
        return join_results(request)

    report = await place.run(make_family("lead", child), budget=Budget(depth=2))
    assert (place.project / "own.txt").read_text() == "own\n"
    assert (place.project / "deep.txt").read_text() == "deep\n"
    assert report.reason is Reason.GOAL


async def test_a_conflict_goes_back_to_a_grandchild_on_the_machine_of_its_parent(
    place: Place,
) -> None:
    def child(request: Request) -> Answer:
        if request.prompt != "GRANDCHILD":
            return "done" if request.turn else call("task", agent="writer", prompt="GRANDCHILD")
        if not request.turn:
            [lead] = place.folder.glob("node/nodes/*/*/runs/1.1.1/**/a.txt")
            lead.write_text("by the parent\n")
            return call("bash", command="echo by the grandchild > a.txt")
        if request.turn == 2:
            return call("bash", command="sed s/^/:/ a.txt > seen.txt; echo both > a.txt")
        return "done"

    report = await place.run(make_family("lead", child), budget=Budget(depth=2))
    assert report.reason is Reason.GOAL
    assert (place.project / "a.txt").read_text() == "both\n"
    seen = (place.project / "seen.txt").read_text()
    assert "by the parent" in seen and "by the grandchild" in seen and "<<<<<<<" in seen
    assert find_violations([event async for event in place.journal.read()]) == []


async def test_a_child_that_changes_shared_files_is_told_what_to_do(place: Place) -> None:
    report = await place.run(make_family("sharer", lambda _: "never asked"))
    assert "it may change files, and shares them" in report.text
    for remedy in ("isolated workspace", "permission mode plan", "mount the folder"):
        assert remedy in report.text
    assert "never asked" not in report.text


async def test_a_child_that_needs_the_folder_gets_a_process_that_sees_it(place: Place) -> None:
    def child(request: Request) -> Answer:
        if not request.turn:
            number = request.prompt.split()[-1]
            return call("bash", command=f"echo {number} > {number}.txt")
        return "done"

    async with place.open(make_family("sharer", child, 3), worker="process:2") as session:
        hide_files(session, place.folder, MixedTransport)
        report = await session.run("PARENT")
    assert report.text.count("done") == 3
    assert sorted(path.name for path in place.project.glob("[0-9].txt")) == [
        "0.txt",
        "1.txt",
        "2.txt",
    ]


async def test_work_that_does_not_arrive_whole_ends_the_run_as_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = tree_transfer._add_piece

    def damage(path: Path, offset: int, data: bytes, max_bytes: int) -> None:
        add(path, offset, data[:-1] + bytes([data[-1] ^ 1]), max_bytes)

    monkeypatch.setattr(tree_transfer, "_add_piece", damage)

    def child(request: Request) -> Answer:
        return "done" if request.turn else call("write", path="a.txt", content="child\n")

    report = await place.run(make_family("writer", child))
    lost = (await place.find_reports())["1.1.1"]
    assert lost.reason is Reason.LOST
    assert "could not be sent to the session" in lost.error and "is damaged" in lost.error
    assert lost.error in report.text
    assert (place.project / "a.txt").read_text() == "changed\n"
    assert lost.turns == 2
    events = [event async for event in place.journal.read()]
    assert find_violations(events) == []


async def test_work_that_does_not_fit_on_the_disk_ends_the_run_as_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = place.folder / "full"
    full.symlink_to("/dev/full")

    def find_full(_: object, run_id: str) -> Path:
        return full

    monkeypatch.setattr(tree_transfer.TreeTransfers, "_find_work", find_full)

    def child(request: Request) -> Answer:
        return "done" if request.turn else call("write", path="a.txt", content="child\n")

    await place.run(make_family("writer", child))
    lost = (await place.find_reports())["1.1.1"]
    assert lost.reason is Reason.LOST
    assert "No space left on device" in lost.error


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (("MUDROOM_HOME", "/proc/none"), "this machine has no folder for files of its own"),
        (("PATH", "/nonexistent"), "files cannot be sent to another machine without git"),
    ],
    ids=["no folder", "no git"],
)
async def test_a_machine_that_can_take_no_files_says_why(
    variable: tuple[str, str], text: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FarTransport, "variables", (variable,))
    report = await place.run(make_family("reader", lambda _: "never asked"))
    assert text in report.text
    assert "never asked" not in report.text


async def test_files_that_cannot_be_packed_end_the_run_with_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tree_transfer.TreeTransfers, "_write_pack", fail)
    report = await place.run(make_family("reader", lambda _: "never asked"))
    assert "files cannot be sent to a machine: No space left on device" in report.text
    assert "never asked" not in report.text


async def test_files_that_cannot_be_stored_end_the_run_with_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mudroom._adapters.workspaces.isolated import store

    monkeypatch.setattr(store, "MAX_FILES", 1)
    report = await place.run(make_family("reader", lambda _: "never asked"))
    assert "files that git does not ignore; an isolated workspace can have 1" in report.text


async def test_files_with_conflict_marks_of_another_machine_are_not_merged(place: Place) -> None:
    def child(request: Request) -> Answer:
        if request.turn:
            return "done"
        write_files(place.project, {"a.txt": "by the user\n"})
        return call("bash", command="echo by the child > a.txt")

    report = await place.run(make_family("writer", child))
    assert "[merge: not done, 1 conflict" in report.text
    assert (place.project / "a.txt").read_text() == "by the user\n"
