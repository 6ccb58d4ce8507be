"""One task in a clean context: the child reads the files, and only its report comes back.

Run it in any folder: `python examples/01_one_task.py path/to/project`. With an API key in the
environment a real model does it, otherwise the offline model, which knows this kind of question.
"""

import asyncio
import sys

from mudroom import Session


async def main(folder: str) -> None:
    async with Session(cwd=folder) as session:
        report = await session.task(
            "Find what testing framework this project uses.", agent="explore"
        )
    calls = sum(report.calls.values())
    files = len(report.files_read)
    print(report.text)
    print(f"[{report.reason}: {report.turns} turns, {calls} tool calls, read {files} files]")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "."))
