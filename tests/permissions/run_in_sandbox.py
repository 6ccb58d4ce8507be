"""Program that runs commands in the best sandbox of this machine; test_traced runs it in a tracer.

    python run_in_sandbox.py FOLDER < commands.json

FOLDER holds `work`, the workspace, and `bin`, programs for the commands. The program `mark` runs
before each command. Prints the tier of the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path

from mudroom._adapters.sandboxes.choose import SandboxRequest, choose_sandbox

SECONDS = 2
"""Timeout of one command."""
TOGETHER = 25
"""Commands that run one after the other in the same sandbox."""


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
            home=str(folder / "records"),
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
