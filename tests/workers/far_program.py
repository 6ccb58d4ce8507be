"""Session in a folder that the nodes of a Ray cluster do not see; prints what became of it.

Arguments: the folder for the project and the state. A tmpfs is mounted there for this process only.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.workspaces.git_projects import make_repository, write_files

from mudroom import Agent, Budget, Session, WorkspaceKind
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

READER = Agent(name="reader", description="Reads.", tools=("read",))
WRITER = Agent(name="writer", description="Writes.", workspace=WorkspaceKind.ISOLATED)
FILES = 300


def answer(request: Request) -> Answer:
    if request.prompt == "PARENT":
        if not request.turn:
            return [
                call("task", agent="reader", prompt="READ"),
                call("task", agent="writer", prompt="WRITE 1"),
                call("task", agent="writer", prompt="WRITE 2"),
                call("task", agent="general", prompt="SHARE"),
            ]
        return "\n".join(result.text for result in request.results)
    if request.turn:
        return " | ".join(result.text for result in request.results)
    if request.prompt == "READ":
        return call("read", path="src/7.txt")
    number = request.prompt.split()[-1]
    return call("bash", command=f"cat src/{number}.txt > {number}.new; ls src | wc -l")


async def main(folder: Path) -> None:
    project = make_repository(
        folder / "project", {f"src/{n}.txt": f"text {n}\n" for n in range(FILES)}
    )
    write_files(project, {"src/7.txt": "changed\n"})
    async with Session(
        model=ScriptedModel(answer),
        agents=[READER, WRITER],
        cwd=str(project),
        home=str(folder / "home"),
        sandbox="off",
        worker="ray:2",
        budget=Budget(turns=10),
    ) as session:
        report = await session.run("PARENT")
    new = {path.name: path.read_text() for path in project.glob("*.new")}
    print(json.dumps({"reason": report.reason, "text": report.text, "new": new}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
