"""Evidence: files that commands and other effectful tools changed are in reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Stage

from mudroom import Effect, Reason, Report, Session, ToolResult, tool
from mudroom._engine import evidence
from mudroom.events import ToolCallFinished, ToolCallStarted
from mudroom.journals.memory import MemoryJournal
from mudroom.journals.sqlite.folder import session_path
from mudroom.journals.sqlite.journal import SqliteJournal
from mudroom.models.scripted import ScriptedModel, call
from mudroom.ports import FileInfo, ToolContext
from mudroom.replay import replay
from mudroom.workspaces.shared import SharedWorkspace

COMMAND = "echo new > made.txt; echo four >> notes.txt; rm old.txt"


def bash(command: str) -> Any:
    return call("bash", command=command)


def task(prompt: str) -> Any:
    return call("task", prompt=prompt)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each listing of a workspace is added; the listing is real."""
    listings: list[str] = []
    walk = SharedWorkspace.walk

    def count(
        self: SharedWorkspace,
        path: str = ".",
        *,
        ignored: bool = False,
        skipped: list[str] | None = None,
    ) -> Iterator[FileInfo]:
        listings.append(path)
        return walk(self, path, ignored=ignored, skipped=skipped)

    monkeypatch.setattr(SharedWorkspace, "walk", count)
    return listings


async def test_files_that_a_childs_command_changed_are_in_its_evidence(stage: Stage) -> None:
    (stage.folder / "old.txt").write_text("old")
    journal = MemoryJournal()
    report = await stage.run(
        {"PARENT": [task("CHILD"), "done"], "CHILD": [bash(COMMAND), "I changed nothing."]},
        journal=journal,
    )
    changed = ("made.txt", "notes.txt", "old.txt")
    assert "; no file read; changed while commands ran: made.txt, notes.txt, old.txt; " in (
        stage.results[-1].text
    )
    for end in (stage.reports["1.1.1"], report):
        assert (end.files_changed, end.observed_changes) == (changed, changed)
        assert (end.files_written, end.unknown_changes) == ((), "")
    await replay(journal.events)


async def test_files_of_tools_and_of_commands_are_told_apart(stage: Stage) -> None:
    child = [
        call("write", file_path="new.txt", content="x"),
        bash("cat new.txt > made.txt"),
        "done",
    ]
    report = await stage.run({"PARENT": [task("CHILD"), "done"], "CHILD": child})
    assert "; wrote new.txt; changed while commands ran: made.txt; " in stage.results[-1].text
    assert report.files_changed == ("new.txt", "made.txt")
    assert (report.files_written, report.observed_changes) == (("new.txt",), ("made.txt",))


async def test_a_command_that_changes_no_file_leaves_no_trace(stage: Stage) -> None:
    report = await stage.run({"PARENT": [bash("cat notes.txt; chmod 644 nothing"), "done"]})
    assert (report.files_changed, report.unknown_changes) == ((), "")


async def test_a_change_that_keeps_size_and_time_is_seen(stage: Stage) -> None:
    command = "touch -r notes.txt t; tr a-z A-Z < notes.txt > u; cat u > notes.txt; "
    command += "touch -r t notes.txt; rm t u"
    report = await stage.run({"PARENT": [bash(command), "done"]})
    assert report.files_changed == ("notes.txt",)


async def test_pure_and_recorded_calls_list_no_folder(stage: Stage, scans: list[str]) -> None:
    calls = [call("read", path="notes.txt"), call("write", file_path="a.txt", content="x")]
    report = await stage.run({"PARENT": [calls, "done"]})
    assert report.files_written == ("a.txt",) and not scans


async def test_changes_of_own_effectful_tools_are_seen(stage: Stage) -> None:
    @tool
    def deploy(ctx: ToolContext) -> str:
        """Write one file directly and one through the workspace."""
        (stage.folder / "direct.txt").write_text("x")
        ctx.workspace.write("recorded.txt", b"x")
        return "deployed"

    @tool(effect=Effect.KEYED)
    def keep(ctx: ToolContext) -> str:
        """Write a file through the workspace."""
        ctx.workspace.write("kept.txt", b"x")
        return "kept"

    calls = [call("keep"), call("deploy")]
    report = await stage.run({"PARENT": [calls, "done"]}, tools=[deploy, keep])
    assert report.files_written == ("kept.txt", "recorded.txt")
    assert report.observed_changes == ("direct.txt",)


async def test_a_hook_that_changes_a_result_keeps_its_evidence(stage: Stage) -> None:
    from mudroom.ports import Hooks

    class Censor(Hooks):
        async def after_tool(self, brief: object, call: object, result: object) -> ToolResult:
            return ToolResult("censored")

    calls = [bash("echo > made.txt"), call("write", file_path="a.txt", content="x")]
    report = await stage.run({"PARENT": [calls, "done"]}, hooks=Censor())
    assert (report.files_written, report.observed_changes) == (("a.txt",), ("made.txt",))


async def test_a_file_that_a_sibling_wrote_is_not_credited_to_a_command(stage: Stage) -> None:
    is_running = asyncio.Event()
    is_written = asyncio.Event()

    @tool
    async def work() -> str:
        """Wait until the sibling has written its file."""
        is_running.set()
        await is_written.wait()
        return "done"

    @tool(effect=Effect.PURE)
    async def wait() -> str:
        """Wait until the sibling works."""
        await is_running.wait()
        return "go"

    async with stage.open(
        {
            "PARENT": [[task("A"), task("B")], "done"],
            "A": [call("work"), "done"],
            "B": [call("wait"), call("write", file_path="b.txt", content="x"), "done"],
        },
        tools=[work, wait],
    ) as session:

        def release(event: object) -> None:
            if isinstance(event, ToolCallFinished) and event.name == "write":
                is_written.set()

        session.watch(release)
        await session.run("PARENT")
    assert [stage.reports[run].files_changed for run in ("1.1.1", "1.1.2")] == [(), ("b.txt",)]


async def test_changes_of_a_command_that_was_cut_off_are_seen(stage: Stage) -> None:
    script = {
        "PARENT": [task("CHILD"), "done"],
        "CHILD": [bash("echo > made.txt; sleep 60"), "never"],
    }
    async with stage.open(script) as session:
        running = asyncio.ensure_future(session.run("PARENT"))
        await stage.wait_until((stage.folder / "made.txt").exists)
        session.cancel("1.1.1")
        report = await running
    child = stage.reports["1.1.1"]
    assert (child.reason, child.files_changed) == (Reason.CANCELLED, ("made.txt",))
    assert report.files_changed == ("made.txt",)


async def test_changes_before_a_crash_are_not_known(stage: Stage) -> None:
    journal = MemoryJournal()
    await stage.run({"PARENT": [bash("echo > made.txt"), "done"]}, journal=journal)
    session_id = stage.session.id
    home = str(stage.home)
    path = session_path(stage.home, session_id)
    earlier = SqliteJournal.open(path, session=session_id, create=True)
    started = [isinstance(event, ToolCallStarted) for event in journal.events].index(True)
    await earlier.append(*journal.events[: started + 1])
    await earlier.close()
    model = ScriptedModel(["done"])
    async with Session(model=model, home=home, resume=session_id, sandbox="off") as session:
        report = await session.resume_unfinished()
    assert report and (report.files_changed, report.unknown_changes) == (
        (),
        "a call was interrupted",
    )


async def test_the_record_of_the_session_itself_is_not_a_change(stage: Stage) -> None:
    home = stage.folder / "home"
    report = await stage.run({"PARENT": [bash("true"), "done"]}, home=str(home), journal="sqlite")
    assert any(home.rglob("*.db*")) and report.files_changed == ()


async def test_a_folder_that_is_too_large_is_tried_once_and_said(
    stage: Stage, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "MAX_FILES", 2)
    for number in range(3):
        (stage.folder / f"{number}.txt").touch()
    child = [bash("echo > made.txt"), bash("true"), "done"]
    report = await stage.run({"PARENT": [task("CHILD"), "done"], "CHILD": child})
    why = "the folder has more than 2 files"
    assert (report.files_changed, report.unknown_changes) == ((), why)
    assert f"; changes by commands not known: {why}; " in stage.results[-1].text
    assert len(scans) == 1


async def test_a_folder_that_is_too_slow_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "SCAN_SECONDS", 0)
    report = await stage.run({"PARENT": [bash("echo > made.txt"), "done"]})
    assert report.unknown_changes == "listing the folder takes more than 0 s"


async def test_of_many_changed_files_a_part_is_listed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "MAX_LISTED_CHANGES", 2)
    report = await stage.run({"PARENT": [bash("touch a b c"), "done"]})
    assert report.files_changed == ("a", "b")
    assert report.unknown_changes == "only 2 of 3 files are listed"


async def test_ignored_files_and_changed_ignore_rules_make_no_false_statement(
    stage: Stage,
) -> None:
    (stage.folder / ".gitignore").write_text("build/\n")
    (stage.folder / "build").mkdir()
    (stage.folder / "build" / "old").touch()

    async def run(command: str) -> Report:
        return await stage.run({"PARENT": [bash(command), "done"]})

    assert (await run("touch build/new")).files_changed == ()
    report = await run("echo > .gitignore; echo five >> notes.txt")
    assert report.files_changed == (".gitignore", "notes.txt")
    assert report.unknown_changes == "the ignore rules of git changed"


async def test_calls_at_the_same_time_share_scans(tmp_path: Path, scans: list[str]) -> None:
    watch = evidence.ChangeWatch(str(tmp_path / "home"))
    workspace = SharedWorkspace(str(tmp_path))
    windows = [evidence.ChangeWindow(watch, workspace, ()) for _ in range(20)]
    await asyncio.gather(*(window.start() for window in windows))
    (tmp_path / "made.txt").touch()
    results = await asyncio.gather(*(window.close(ToolResult("")) for window in windows))
    assert {result.observed_changes for result in results} == {("made.txt",)}
    assert len(scans) <= 4


async def test_folders_that_cannot_be_listed_are_said(stage: Stage) -> None:
    command = f"mkdir -p {'d/' * 201}; echo > notes.txt"
    report = await stage.run({"PARENT": [bash(command), "done"]})
    assert report.files_changed == ("notes.txt",)
    assert report.unknown_changes == "some folders cannot be listed"
