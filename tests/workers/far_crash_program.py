"""Program that kills itself: its isolated children are on machines that do not see the folder.

Usage: python far_crash_program.py FOLDER SESSION_ID CHILDREN MACHINES STEPS

MACHINES are the machines of its worker processes, with commas; "" for no worker processes; a value
of the option `worker` for those of a Ray cluster. STEPS are the answers to the requests of each
child in this process, with commas; see `Script`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from tests.workers.far_place import AGENTS, ListedTransport, get_worker, hide_files, kill

from mudroom import Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workers.remote.worker import RemoteWorker


class Script:
    def __init__(self, children: int, steps: list[str]) -> None:
        self._children = children
        self._steps = steps
        self._requests: Counter[str] = Counter()
        self._ready = 0
        self.worker: RemoteWorker | None = None

    def answer(self, request: Request) -> Answer:
        if request.prompt == "PARENT":
            if request.turn:
                return "\n".join(result.text for result in request.results)
            return [call("task", agent="writer", prompt=str(n)) for n in range(self._children)]
        child = request.prompt
        step = self._steps[self._requests[child]]
        self._requests[child] += 1
        if step == "read":
            return call("read", path="a.txt")
        if step == "lose":  # the machine is lost
            assert self.worker
            kill(self.worker._pool.processes[0])
            return "not received"
        if step == "crash":
            self._ready += 1
            if self._ready == self._children:
                os.kill(os.getpid(), signal.SIGKILL)
            return call("bash", command="sleep 60")
        return "done" if step == "end" else call("bash", command=f"echo {step} >> {child}.txt")


async def main(folder: Path, session_id: str, children: str, machines: str, steps: str) -> None:
    """Open or resume the session, run it to its end, and print the report."""
    exists = (folder / "home" / "sessions" / f"{session_id}.db").exists()
    script = Script(int(children), steps.split(","))
    names = machines.split(",")
    is_ray = machines.startswith("ray")
    worker = f"process:{len(names)}" if machines else "local"
    async with Session(
        model=ScriptedModel(script.answer),
        cwd=str(folder / "project"),
        home=str(folder / "home"),
        sandbox="off",
        agents=AGENTS,
        worker=machines if is_ray else worker,
        resume=session_id if exists else "",
        id="" if exists else session_id,
    ) as session:
        if is_ray:
            # The first child that asks gets another machine in each process of the session.
            processes = get_worker(session)._pool.processes
            processes.sort(key=lambda process: process.host, reverse=exists)
        elif machines:
            transport = partial(ListedTransport, machines=names)
            script.worker = hide_files(session, folder, transport)
            await script.worker.open()
        report = await session.resume_unfinished()
        if report is None:
            report = await session.run("PARENT")
    print(report.reason, report.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
