"""Program that tests kill: a session with worker processes whose children append to a log.

Usage: python crash_program.py FOLDER SESSION_ID WORKER
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mudroom import Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

CHILDREN = 3
STEPS = 4


def answer(request: Request) -> Answer:
    if request.prompt == "PARENT":
        if not request.turn:
            return [call("task", prompt=f"CHILD {number}") for number in range(CHILDREN)]
        return " | ".join(result.text.splitlines()[0] for result in request.results)
    number = request.prompt.split()[-1]
    if request.turn < STEPS:
        return call("bash", command=f"echo {number}-{request.turn} >> log; sleep 0.05")
    return f"child {number} is done"


async def main(folder: Path, session_id: str, worker: str) -> None:
    """Open or resume the session, run it to its end, and print the report."""
    exists = (folder / "home" / "sessions" / f"{session_id}.db").exists()
    async with Session(
        model=ScriptedModel(answer),
        cwd=str(folder),
        home=str(folder / "home"),
        sandbox="off",
        worker=worker,
        resume=session_id if exists else "",
        id="" if exists else session_id,
    ) as session:
        report = await session.resume_unfinished()
        if report is None:
            report = await session.run("PARENT")
    print(report.reason, report.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
