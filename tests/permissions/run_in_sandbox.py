"""Runs commands one after the other in the best walls there are; the traced test has it run under a tracer, and reads what it started.

    python walled.py FOLDER < commands.json

FOLDER holds `work`, the workspace, and `bin`, programs that commands find there. Before each command the program `mark` runs.
Prints the tier of the walls.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path

from mudroom.sandboxes.choose import SandboxRequest, choose_sandbox

SECONDS, TOGETHER = 2, 25
"""The longest that one command may take; and how many are run within the same walls, one after the other."""


async def main(folder: Path) -> None:
    programs = str(folder / "bin")
    environ = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "VIRTUAL_ENV": programs,
        "LANG": "C.UTF-8",
        "HOME": str(folder / "home"),
    }
    sandbox, _ = choose_sandbox(
        SandboxRequest(
            workspace=str(folder / "work"),
            mode="auto",
            state_dir=str(folder / "records"),
            environ=environ,
        )
    )
    texts: list[str] = json.load(sys.stdin)
    for at in range(0, len(texts), TOGETHER):
        lines = [
            f"mark; x=evil y=-exec timeout -s KILL {SECONDS} bash -c {shlex.quote(text)}"
            for text in texts[at : at + TOGETHER]
        ]
        await sandbox.run("\n".join(lines), timeout=SECONDS * TOGETHER + 60, sink=lambda _: None)
    sandbox.close()
    print(sandbox.tier)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
