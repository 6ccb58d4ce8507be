"""A replayed session as the model of children in worker processes."""

from __future__ import annotations

from pathlib import Path

from mudroom import Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call


def answer_as_family(request: Request) -> Answer:
    if request.prompt == "PARENT":
        tasks = [call("task", prompt=f"CHILD {n}") for n in range(3)]
        return tasks if request.turn == 0 else "All are done."
    return "the same report"


async def test_children_in_worker_processes_share_one_replayed_record(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    async with Session(
        model=ScriptedModel(answer_as_family), cwd=str(tmp_path), home=home, sandbox="off"
    ) as session:
        assert (await session.run("PARENT")).ok
    async with Session(
        model=f"replay:{session.id}",
        cwd=str(tmp_path),
        home=home,
        sandbox="off",
        worker="process:2",
    ) as replayed:
        report = await replayed.run("PARENT")
    assert (report.text, report.error) == ("All are done.", "")
