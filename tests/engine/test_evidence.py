"""Evidence: files that commands and other effectful tools changed are in reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.conftest import Stage

from mudroom import Effect, Integrations, Reason, Report, ToolCallBlock, ToolResult, tool
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import call
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._engine.changes import watch
from mudroom._engine.child_report import format_evidence
from mudroom._engine.conversation import CallOutcome
from mudroom._engine.evidence import Evidence
from mudroom.events import ToolCallFinished, ToolCallStarted
from mudroom.ports import FileInfo, ToolContext

COMMAND = "echo new > made.txt; echo four >> notes.txt; rm old.txt"
WITHOUT_SANDBOX = "commands ran without a sandbox, and files outside the folder were not compared"


def list_gaps(report: Report) -> str:
    """Return why more files may have changed, but for the sandbox, which is off here."""
    reasons = report.unknown_changes.split("; ")
    reasons.remove(WITHOUT_SANDBOX)
    return "; ".join(reasons)


def call_bash(command: str) -> ToolCallBlock:
    return call("bash", command=command)


def call_task(prompt: str) -> ToolCallBlock:
    return call("task", prompt=prompt)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each listing of a workspace is added; the listing is real."""
    listings: list[str] = []
    walk = SharedWorkspace.walk_entries

    def count(
        self: SharedWorkspace,
        path: str = ".",
        *,
        ignored: bool = False,
        skipped: list[str] | None = None,
    ) -> Iterator[FileInfo]:
        listings.append(path)
        return walk(self, path, ignored=ignored, skipped=skipped)

    monkeypatch.setattr(SharedWorkspace, "walk_entries", count)
    return listings


UNTIL = "while [ ! -e {} ]; do sleep 0.02; done"


async def test_a_child_whose_command_ran_beside_anothers_says_so(stage: Stage) -> None:
    first = f"touch by0.txt; {UNTIL.format('by1.txt')}; touch end; {UNTIL.format('end2')}"
    second = f"touch by1.txt; {UNTIL.format('end')}; touch end2"
    report = await stage.run(
        {
            "PARENT": [[call_task("ONE"), call_task("TWO")], "done"],
            "ONE": [call_bash(first), "Done."],
            "TWO": [call_bash(second), "Done."],
        }
    )
    assert report.parallel_runs == ()
    one, two = (stage.reports[run] for run in ("1.1.1", "1.1.2"))
    assert one.parallel_runs == ("1.1.2",)
    assert two.parallel_runs == ("1.1.1",)
    assert "(also while 1.1.2 ran a command); " in format_evidence(one)
    assert "(also while 1.1.1 ran a command); " in format_evidence(two)


async def test_a_child_is_not_told_of_commands_before_and_after_its_own(stage: Stage) -> None:
    await stage.run(
        {
            "PARENT": [call_task("ONE"), call_task("TWO"), "done"],
            "ONE": [call_bash("touch by0.txt"), "Done."],
            "TWO": [call_bash("touch by1.txt"), "Done."],
        }
    )
    for run, name in (("1.1.1", "by0.txt"), ("1.2.1", "by1.txt")):
        assert stage.reports[run].parallel_runs == ()
        evidence = format_evidence(stage.reports[run])
        assert f"changed while commands ran: {name}; " in evidence


async def test_files_that_a_childs_tools_and_commands_changed_are_told_apart(stage: Stage) -> None:
    (stage.folder / "old.txt").write_text("old")
    write = call("write", file_path="new.txt", content="x")
    report = await stage.run_checked(
        {
            "PARENT": [call_task("CHILD"), "done"],
            "CHILD": [write, call_bash(COMMAND), "I changed nothing."],
        },
    )
    changed = ("made.txt", "notes.txt", "old.txt")
    told = "; wrote new.txt; changed while commands ran: made.txt, notes.txt, old.txt; "
    assert told in stage.results[-1].text
    for end in (stage.reports["1.1.1"], report):
        assert end.files_changed == ("new.txt", *changed)
        assert (end.files_written, end.observed_changes) == (("new.txt",), changed)
        assert list_gaps(end) == ""


async def test_a_command_that_changes_no_file_leaves_no_trace(stage: Stage) -> None:
    report = await stage.run({"PARENT": [call_bash("cat notes.txt; chmod 644 nothing"), "done"]})
    assert (report.files_changed, list_gaps(report)) == ((), "")


async def test_a_change_that_keeps_size_and_time_is_seen(stage: Stage) -> None:
    command = "touch -r notes.txt t; tr a-z A-Z < notes.txt > u; cat u > notes.txt; "
    command += "touch -r t notes.txt; rm t u"
    report = await stage.run({"PARENT": [call_bash(command), "done"]})
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

    calls = [call_bash("echo > made.txt"), call("write", file_path="a.txt", content="x")]
    report = await stage.run({"PARENT": [calls, "done"]}, integrations=Integrations(hooks=Censor()))
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
            "PARENT": [[call_task("A"), call_task("B")], "done"],
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
        "PARENT": [call_task("CHILD"), "done"],
        "CHILD": [call_bash("echo > made.txt; sleep 60"), "never"],
    }
    async with stage.open(script) as session:
        running = asyncio.ensure_future(session.run("PARENT"))
        await stage.wait_until((stage.folder / "made.txt").exists)
        session.runs.cancel("1.1.1")
        report = await running
    child = stage.reports["1.1.1"]
    assert (child.reason, child.files_changed) == (Reason.CANCELLED, ("made.txt",))
    assert report.files_changed == ("made.txt",)


async def test_changes_before_a_crash_are_not_known(stage: Stage) -> None:
    journal, past = MemoryJournal(), MemoryJournal()
    await stage.run({"PARENT": [call_bash("echo > made.txt"), "done"]}, journal=journal)
    started = [isinstance(event, ToolCallStarted) for event in journal.events].index(True)
    await past.append(*journal.events[: started + 1])
    async with stage.open(["done"], journal=past, resume=stage.session.id) as session:
        report = await session.resume_unfinished()
    assert report and (report.files_changed, report.unknown_changes) == (
        (),
        "a call was interrupted",
    )


async def test_the_record_of_the_session_itself_is_not_a_change(stage: Stage) -> None:
    home = stage.folder / "home"
    report = await stage.run(
        {"PARENT": [call_bash("true"), "done"]}, home=str(home), journal="sqlite"
    )
    assert any(home.rglob("*.db*")) and report.files_changed == ()


async def test_a_folder_that_is_too_large_is_tried_once_and_said(
    stage: Stage, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_FILES", 2)
    for number in range(3):
        (stage.folder / f"{number}.txt").touch()
    child = [call_bash("echo > made.txt"), call_bash("true"), "done"]
    report = await stage.run({"PARENT": [call_task("CHILD"), "done"], "CHILD": child})
    why = "the folder has more than 2 files"
    assert (report.files_changed, list_gaps(report)) == ((), why)
    assert f"; files may have changed ({WITHOUT_SANDBOX}, {why}); " in stage.results[-1].text
    assert len(scans) == 1


async def test_a_folder_that_is_too_slow_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SCAN_SECONDS", 0)
    monkeypatch.setattr(watch, "_CLOCK_INTERVAL", 1)
    report = await stage.run({"PARENT": [call_bash("echo > made.txt"), "done"]})
    assert list_gaps(report) == "listing the folder takes more than 0 s"


async def test_of_many_changed_files_a_part_is_listed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_LISTED_CHANGES", 2)
    report = await stage.run({"PARENT": [call_bash("touch a b c"), "done"]})
    assert report.files_changed == ("a", "b")
    assert list_gaps(report) == "only 2 of 3 files are listed"


def add_ignored_files(folder: Path, count: int) -> None:
    """Add `notes.log`, and the folder `deps` with files, that git ignores."""
    (folder / ".gitignore").write_text("deps/\n*.log\n")
    (folder / "notes.log").touch()
    (folder / "deps").mkdir()
    for number in range(count):
        (folder / "deps" / f"{number}.js").touch()


async def test_ignored_files_are_seen_and_listed_last(stage: Stage) -> None:
    add_ignored_files(stage.folder, 2)
    command = "echo > deps/new; echo > notes.log; rm deps/0.js; echo > z"
    report = await stage.run({"PARENT": [call_bash(command), "done"]})
    assert report.files_changed == ("z", "deps/0.js", "deps/new", "notes.log")
    assert list_gaps(report) == ""


async def test_changed_ignore_rules_hide_nothing_and_add_nothing(stage: Stage) -> None:
    add_ignored_files(stage.folder, 2)
    command = "echo > .gitignore; echo five >> notes.txt; echo > deps/0.js"
    report = await stage.run({"PARENT": [call_bash(command), "done"]})
    assert set(report.files_changed) == {".gitignore", "notes.txt", "deps/0.js"}
    assert list_gaps(report) == ""


async def test_a_large_ignored_folder_is_tried_once_and_named(
    stage: Stage, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_FILES", 20)
    add_ignored_files(stage.folder, 30)
    child = [call_bash("touch deps/new new.log"), call_bash("true"), "done"]
    report = await stage.run({"PARENT": [call_task("CHILD"), "done"], "CHILD": child})
    assert report.observed_changes == ("new.log",)
    assert list_gaps(report) == "not compared: deps/"
    assert f"; more files may have changed ({WITHOUT_SANDBOX}, not compared: deps/); " in (
        stage.results[-1].text
    )
    assert scans == [".", "deps", ".", ".", "."]


async def test_a_command_that_makes_a_large_ignored_folder_is_seen(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_FILES", 20)
    (stage.folder / ".gitignore").write_text("deps/\n")
    child = [call_bash("mkdir deps; cd deps; touch $(seq 30)"), call_bash("rm -r deps"), "done"]
    report = await stage.run({"PARENT": [call_task("CHILD"), "done"], "CHILD": child})
    assert "; changed while commands ran: deps/; " in stage.results[-1].text
    assert report.files_changed == ("deps/",)
    assert list_gaps(report) == "not compared: deps/"


async def test_a_slow_ignored_folder_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "IGNORED_SECONDS", 0)
    monkeypatch.setattr(watch, "_CLOCK_INTERVAL", 4)
    add_ignored_files(stage.folder, 4)
    report = await stage.run({"PARENT": [call_bash("touch deps/new other"), "done"]})
    assert report.files_changed == ("other",)
    assert list_gaps(report) == "not compared: deps/"


async def test_links_and_empty_folders_are_seen(stage: Stage) -> None:
    for name in ("changed", "removed", "same"):
        (stage.folder / name).symlink_to("notes.txt")
    (stage.folder / "old" / "empty").mkdir(parents=True)
    (stage.folder / "full").mkdir()
    (stage.folder / "full" / "file").touch()
    command = "ln -s /nowhere made; ln -sfn other.txt changed; rm removed; mkfifo pipe; "
    command += "rmdir old/empty; mkdir -p deep/folder; rm -r full; mkdir more; touch more/file"
    report = await stage.run({"PARENT": [call_bash(command), "done"]})
    assert report.files_changed == (
        "changed",
        "deep/folder/",
        "full/file",
        "made",
        "more/file",
        "old/empty/",
        "pipe",
        "removed",
    )
    assert list_gaps(report) == ""


async def test_a_commit_is_seen(stage: Stage) -> None:
    git = "git -c user.name=N -c user.email=e@example.org"
    steps = [
        "git init -q -b main && git add notes.txt",
        f"{git} commit -q -m first",
        "git branch topic",
        "git checkout -q topic",
        "git log -p > /dev/null; git rev-parse HEAD > /dev/null",
    ]
    changes: list[tuple[str, ...]] = []
    for step in steps:
        report = await stage.run({"PARENT": [call_bash(step), "done"]})
        assert (report.failed, list_gaps(report)) == (0, "")
        names = [path for path in report.files_changed if not path.startswith(".git/hooks/")]
        changes.append(tuple(path.removeprefix(".git/") for path in names))
    assert set(changes[0]) >= {"HEAD", "config", "index"}
    assert set(changes[1]) >= {"refs/heads/main"} and len(changes[1]) <= 2
    assert changes[2] == ("refs/heads/topic",)
    assert "HEAD" in changes[3] and len(changes[3]) <= 2
    assert changes[4] == ()


async def test_calls_at_the_same_time_share_scans(tmp_path: Path, scans: list[str]) -> None:
    change_watch = watch.ChangeWatch(str(tmp_path / "home"))
    workspace = SharedWorkspace(str(tmp_path))
    windows = [watch.ChangeWindow(change_watch, workspace, ()) for _ in range(20)]
    await asyncio.gather(*(window.start() for window in windows))
    (tmp_path / "made.txt").touch()
    results = await asyncio.gather(*(window.close(ToolResult("")) for window in windows))
    assert {result.observed_changes for result in results} == {("made.txt",)}
    assert len(scans) <= 4


async def test_a_folder_that_is_made_for_a_write_is_not_credited_to_a_command(
    tmp_path: Path,
) -> None:
    change_watch = watch.ChangeWatch(str(tmp_path / "home"))
    window = watch.ChangeWindow(change_watch, SharedWorkspace(str(tmp_path)), ())
    await window.start()
    change_watch.start_write(str(tmp_path), "deep/a/a.txt")
    (tmp_path / "deep/a").mkdir(parents=True)
    (tmp_path / "deep/b").mkdir()
    assert (await window.close(ToolResult(""))).observed_changes == ("deep/b/",)


async def test_a_write_that_begins_before_a_command_is_not_credited_to_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    change_watch = watch.ChangeWatch(str(tmp_path / "home"))
    window = watch.ChangeWindow(change_watch, SharedWorkspace(root), ())
    change_watch.start_write(root, "earlier.txt")
    change_watch.end_write(root, "earlier.txt")
    change_watch.start_write(root, "written.txt")
    await window.start()
    (tmp_path / "earlier.txt").touch()
    (tmp_path / "written.txt").touch()
    assert (await window.close(ToolResult(""))).observed_changes == ("earlier.txt",)


def test_a_folder_of_a_write_that_a_crash_interrupted_is_no_change() -> None:
    counted = Evidence()
    command = ToolResult("", observed_changes=("deep/b/", "deep/c/"))
    write = ToolResult("", changes=("deep/b/b.txt",))
    counted.add([CallOutcome("1", "bash", command), CallOutcome("2", "write", write)])
    assert counted.observed_changes == ("deep/c/",)
    assert counted.files_changed == ("deep/c/", "deep/b/b.txt")


async def test_folders_that_cannot_be_listed_are_named(stage: Stage) -> None:
    command = f"mkdir -p {'d/' * 201}; echo > notes.txt"
    report = await stage.run({"PARENT": [call_bash(command), "done"]})
    assert report.files_changed == ("d/" * 201, "notes.txt")
    assert list_gaps(report) == f"not compared: {'d/' * 201}"
