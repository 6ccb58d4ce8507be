"""One task in a clean context: the child reads the files, and only its report comes back.

`MUDROOM_MODEL=anthropic:sonnet python examples/01_one_task.py path/to/project` uses a real model;
without the variable the offline model does it, which knows this kind of question.
"""

import asyncio
import os
import sys

from mudroom import Session


async def main(folder: str) -> None:
    model = os.environ.get("MUDROOM_MODEL", "offline")
    async with Session(model=model, cwd=folder) as session:
        report = await session.task(
            "Find what testing framework this project uses.", agent="explore"
        )
    calls = sum(report.calls.values())
    files = len(report.files_read)
    print(report.text)
    print(f"[{report.reason}: {report.turns} turns, {calls} tool calls, read {files} files]")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "."))
