"""Work at the prompt: changed files and their undo, and the merges of isolated children."""

from __future__ import annotations

from pathlib import Path

from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL

EDITING = (*MODEL, "--permission-mode", "acceptEdits")


async def change_files(request: ServerRequest) -> ServerAnswer:
    """Let the root edit f0.txt, and a child write 新.md and change f1.txt by a command."""
    if "tool_result" in str(request.messages[-1]):
        return "Changed."
    if "task" not in request.tools:
        return [
            ToolCallBlock("w", "write", {"file_path": "新.md", "content": "第一行\n"}),
            ToolCallBlock("b", "bash", {"command": "echo more >> f1.txt"}),
        ]
    number = str(request.messages).count("MUD-")
    arguments = {
        "file_path": "f0.txt",
        "old_string": f"MUD-{number}",
        "new_string": f"MUD-{number + 1}",
    }
    task = {"prompt": "CHILD", "description": "write it"}
    return [ToolCallBlock(f"e{number}", "edit", arguments), ToolCallBlock("t", "task", task)]


async def start(tmux: Tmux, server: ModelServer, *flags: str) -> None:
    await tmux.start(*EDITING, *flags, url=server.url, rows=40)
    await tmux.expect("claude-s")


async def test_changed_files_are_listed_shown_as_differences_and_restored(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    before = (mudroom.project / "f0.txt").read_bytes()
    async with ModelServer(change_files) as server:
        await start(tmux, server)
        await tmux.say("change")
        shown = await tmux.expect("Files changed:", "differences.")
        listed = " ".join(shown.partition("Files changed:")[2].split()).partition(". /diff")[0]
        assert set(listed.split(", ")) == {"f0.txt", "新.md", "f1.txt"}
        await tmux.say("/diff")
        shown = await tmux.expect(
            "f0.txt (+1 -1)", "- 1  MUD-0", "+ 1  MUD-1", "新.md (+1 -0)", "+ 1  第一行", "commands"
        )
        await tmux.say("/diff none.txt")
        await tmux.expect("No file differs.")
        await tmux.say("/rewind 1")
        await tmux.expect("Restore 2 files to the content before this prompt?", "新.md")
        await tmux.press("Escape")
        await tmux.expect("mudroom >>", gone="Restore 2 files")
        (mudroom.project / "新.md").write_text("mine\n")
        await tmux.say("/rewind 1")
        await tmux.expect("▸ 1. yes, restore 2 files")
        await tmux.press("Enter")
        await tmux.expect("Removed prompt 1 and all after it.", "Restored: f0.txt.")
        shown = " ".join((await tmux.expect("commands ran: f1.txt")).split())
        assert "Not restored, changed since or not kept: 新.md." in shown
    assert (mudroom.project / "f0.txt").read_bytes() == before
    assert (mudroom.project / "新.md").read_text() == "mine\n"


async def test_a_resumed_session_still_restores_files(tmux: Tmux, mudroom: Mudroom) -> None:
    before = (mudroom.project / "f0.txt").read_bytes()
    async with ModelServer(change_files) as server:
        done = await mudroom("-p", "change", *MODEL, url=server.url)
        assert "mudroom: Files changed: " in done.err and "f0.txt" in done.err
        assert "f0.txt" not in done.out
        await start(tmux, server, "-c")
        await tmux.say("/undo")
        await tmux.expect("▸ 1. yes, restore 2 files", "3. restore only 2 files, and keep the")
        await tmux.say("3")
        shown = " ".join((await tmux.expect("The conversation stays.")).split())
        assert "before prompt 1. Restored: f0.txt, 新.md. Not restored, changed while" in shown
        assert (mudroom.project / "f0.txt").read_bytes() == before
        assert not (mudroom.project / "新.md").exists()
        count = len(server.requests)
        await tmux.say("next")
        await tmux.expect_scrolled("Changed.", 2)  # the first one is that of the earlier prompt
        request = server.requests[count].body.decode()
        assert "(By the user: Files were restored to their content before prompt 1." in request
        assert "change" in str(server.requests[count].messages[0])


async def test_a_prompt_with_data_on_stdin_changes_nothing_unless_it_may(mudroom: Mudroom) -> None:
    before = (mudroom.project / "f0.txt").read_bytes()
    data = b"diff --git a/f0.txt b/f0.txt\n"
    async with ModelServer(change_files) as server:
        done = await mudroom("-p", "review this", *MODEL, stdin=data, url=server.url)
        assert done.code == 0 and (mudroom.project / "f0.txt").read_bytes() == before
        assert not (mudroom.project / "新.md").exists()
        assert "3 tool calls refused. A prompt with data on stdin may only read." in done.err
        assert "--permission-mode acceptEdits" in done.err and "Files changed" not in done.err
        done = await mudroom("-p", "review this", *EDITING, stdin=data, url=server.url)
        assert "Files changed: f0.txt" in done.err and "refused" not in done.err
        alone = await mudroom("-p", *MODEL, stdin=b"change it", url=server.url)
        assert "refused" not in alone.err


async def start_two_children(request: ServerRequest) -> ServerAnswer:
    """Let a named and an unnamed child write one file each, in isolated workspaces."""
    if "tool_result" in str(request.messages[-1]):
        return "Written."
    first = str(request.messages[0])
    for child, path in (("CHILD alice", "notes.txt"), ("CHILD bob", "新.md")):
        if child in first:
            return [write(path, f"{child}\nsecond\x1b[31m line\n")]
    alice = {"name": "alice", "prompt": "CHILD alice", "isolation": "isolated"}
    bob = {"prompt": "CHILD bob", "description": "write a page", "isolation": "isolated"}
    return [ToolCallBlock("a", "task", alice), ToolCallBlock("b", "task", bob)]


def write(path: str, content: str) -> ToolCallBlock:
    return ToolCallBlock("w", "write", {"file_path": path, "content": content})


async def test_work_that_is_not_merged_is_listed_shown_and_merged(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(start_two_children) as server:
        await tmux.open(server, rows=50)
        await tmux.say("/merge")
        await tmux.expect("No child of this session")
        await tmux.say("write two files")
        await tmux.expect("wants to merge", "new file", "1. yes")
        await tmux.press("n")
        await tmux.expect("Denied.", "1. yes")
        await tmux.press("n")
        await tmux.expect("Written.", "Work of children", gone="1. yes")
        assert not (mudroom.project / "notes.txt").exists()
        await tmux.say("/merge")
        await tmux.expect("alice", "1 file not merged: notes.txt", "新.md", "can merge")
        await tmux.say("/merge @alice")
        await tmux.expect("+CHILD alice", "Merge 1 file into yours?")
        await tmux.press("Enter")
        await tmux.expect("Merged: notes.txt.")
        assert (mudroom.project / "notes.txt").read_text().startswith("CHILD alice\n")
        await tmux.say("/merge")
        await tmux.expect("  merged: notes.txt")
        await tmux.say("/merge nobody")
        await tmux.expect("nobody", "alice")
        Path(mudroom.project, "新.md").write_text("mine\n")
        await tmux.say("/merge 1.1.2")
        await tmux.expect("Merge 1 file into yours?")
        await tmux.press("Enter")
        await tmux.expect("Nothing was changed: these files conflict", "新.md (both-added)")
    assert (mudroom.project / "新.md").read_text() == "mine\n"
