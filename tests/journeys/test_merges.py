"""The work of isolated children at the prompt in tmux: its state, its changes, its merge."""

from __future__ import annotations

from pathlib import Path

from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL


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
        await tmux.start(*MODEL, url=server.url, rows=50)
        await tmux.expect("claude-s")
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
