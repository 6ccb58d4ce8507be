"""Earlier contents of files: kept before tools write, by sessions that are stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import Session
from mudroom._adapters.journals.sessions import open_store
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._projections.differences import FileChanges

from ..worker_kinds import WORKERS


@pytest.mark.parametrize("worker", WORKERS)
async def test_contents_before_each_write_are_kept_until_the_session_is_deleted(
    tmp_path: Path, worker: str
) -> None:
    home = str(tmp_path / "home")
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")

    def answer(request: Request) -> Answer:
        if "CHILD" not in request.prompt:
            writing = call("write", file_path="new.txt", content="new\n")
            return "Done." if request.turn else [call("task", prompt="CHILD write"), writing]
        texts = ("two\n", "three\n")
        if request.turn == len(texts):
            return "Written."
        return [call("write", file_path="a.txt", content=texts[request.turn])]

    changes = FileChanges()
    model = ScriptedModel(answer)
    async with Session(
        model=model, cwd=str(project), home=home, worker=worker, sandbox="off", environ={}
    ) as session:
        session.watch(changes.apply)
        assert (await session.run("PARENT do it")).ok
        by_path = {change.path: change for change in changes.list_changes()}
        assert set(by_path) == {"a.txt", "new.txt"}
        assert session.read_version(by_path["a.txt"].before) == b"one\n"
        assert by_path["new.txt"].before == "" and session.read_version("") == b""
    folder = Path(home, "versions", session.id)
    kept = list(folder.iterdir())
    assert [file.stat().st_mode & 0o777 for file in kept] == [0o600] * 2
    await open_store(home).delete(session.id)
    assert not folder.exists()


async def test_a_session_in_memory_keeps_no_contents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    changes = FileChanges()
    model = ScriptedModel([[call("write", file_path="a.txt", content="two\n")], "Done."])
    async with Session(
        model=model,
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        journal="memory",
        sandbox="off",
        environ={},
    ) as session:
        session.watch(changes.apply)
        await session.run("write")
        (change,) = changes.list_changes()
        assert change.before and session.read_version(change.before) is None
    assert not (tmp_path / "home" / "versions").exists()
