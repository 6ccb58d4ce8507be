"""Texts that are not saved in the editor, which the tool `read` shows with --unsaved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom.errors import WorkspaceError
from mudroom.testing import call
from mudroom_hosts.acp.json_rpc import RequestError
from mudroom_hosts.acp.unsaved_files import MAX_BYTES, UNSAVED_NOTE, UnsavedFiles

from .conftest import Editor, Line, MakeEditor

FILES: Line = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


def list_asked(editor: Editor) -> list[Line]:
    lines = [line for line in editor.lines if line.get("method") == "fs/read_text_file"]
    return [line["params"] for line in lines]


async def test_read_shows_the_text_of_the_editor_and_files_stay(make_editor: MakeEditor) -> None:
    same = call("read", file_path="same.txt")
    child = call("task", description="look", prompt="Read it.", agent="general")
    script = [call("read", file_path="new.py", offset=2), same, child]
    editor = make_editor(
        [*script, call("read", file_path="new.py"), "seen", "Done."], abilities=FILES
    )
    editor.reads_unsaved = True
    editor.give = lambda params: {
        "result": {"content": "a\nb\n" if params["path"].endswith("same.txt") else "one\ntwo\n"}
    }
    (editor.folder / "new.py").write_text("one\n")
    (editor.folder / "same.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    async with editor.use() as session:
        await editor.ask(session, "Work.")
    path = str(editor.folder / "new.py")
    assert list_asked(editor) == [
        {"sessionId": session, "path": each}
        for each in (path, str(editor.folder / "same.txt"), path)
    ]
    texts = [str(request.messages[-1]) for request in editor.model.requests]
    note = UNSAVED_NOTE.format(path="new.py")
    assert "2\\ttwo" in texts[1] and note in texts[1]
    assert "2\\tb" in texts[2] and "not saved" not in texts[2]
    assert any("1\\tone\\n2\\ttwo" in text and note in text for text in texts[3:])
    assert (editor.folder / "new.py").read_text() == "one\n"


async def test_the_editor_is_asked_only_if_it_can_answer_and_the_user_wants_it(
    make_editor: MakeEditor,
) -> None:
    for reads_unsaved, abilities in ((False, FILES), (True, {"fs": {"writeTextFile": True}})):
        editor = make_editor([call("read", file_path="a.txt"), "Done."], abilities=abilities)
        editor.reads_unsaved = reads_unsaved
        (editor.folder / "a.txt").write_text("saved\n")
        async with editor.serve():
            assert (await editor.ask(await editor.open(), "Work."))["stopReason"] == "end_turn"
        assert list_asked(editor) == []
        assert "1\\tsaved" in str(editor.model.requests[-1].messages[-1])
        assert any("--unsaved has no use" in text for text in editor.notices) is reads_unsaved


async def test_a_failed_silent_or_wrong_answer_leaves_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("saved\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    (tmp_path / "large.txt").write_text("x\n" * MAX_BYTES)
    asked: list[str] = []
    notices: list[str] = []
    answers: list[Any] = [RequestError(-32002, "no such buffer"), {"content": 3}]

    async def ask(method: str, params: Line) -> Line:
        asked.append(Path(params["path"]).name)
        if not answers:
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    context: Any = SimpleNamespace(workspace=SharedWorkspace(str(tmp_path)))
    read = UnsavedFiles(ask, lambda: "s1", notices.append, seconds=0.05).make_tool()
    names = ("latin.txt", "large.txt", "a.txt", "a.txt", "a.txt", "a.txt", "missing.txt")
    results = []
    for name in names:
        arguments = read.parse_arguments({"file_path": name})
        try:
            results.append((await read.run(context, arguments)).text)
        except WorkspaceError as error:
            results.append(str(error))
    assert asked == ["a.txt"] * 3
    assert results[2:6] == ["1\tsaved"] * 4
    assert "café" in results[0] and results[1].startswith("1\tx")
    assert "missing.txt does not exist" in results[6]
    assert notices == [
        "the editor did not answer fs/read_text_file in 0.05 s; this session reads saved files only"
    ]


async def test_an_editor_that_has_not_loaded_a_change_yet_has_no_unsaved_text(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.txt"
    buffer = "one\n"

    async def ask(method: str, params: Line) -> Line:
        return {"content": buffer}

    context: Any = SimpleNamespace(workspace=SharedWorkspace(str(tmp_path)))
    read = UnsavedFiles(ask, lambda: "s1", print).make_tool()
    arguments = read.parse_arguments({"file_path": "a.txt"})
    for saved in (b"one\r\n", b"two\n", b"three\n", b"three\n"):  # the agent changes the file
        file.write_bytes(saved)
        shown = (await read.run(context, arguments)).text
        assert shown == f"1\t{saved.decode().strip()}"
    buffer = "by the user\n"
    shown = (await read.run(context, arguments)).text
    assert shown.startswith("1\tby the user\n") and "not saved" in shown
