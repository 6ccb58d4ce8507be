"""One task in a clean context: what the child read stays with it, only its report comes back.

Run it in any folder: `python examples/01_one_task.py path/to/project`. With a key in the environment a real model does it,
without one the offline model, which follows rules and knows this kind of question.
"""

import asyncio
import sys

from mudroom import Session


async def main(folder: str) -> None:
    async with Session(cwd=folder) as session:
        report = await session.task(
            "Find what testing framework this project uses.", agent="explore"
        )
    print(report.text)
    print(
        f"[{report.reason}: {report.turns} turns, {sum(report.calls.values())} tool calls, read {len(report.files_read)} files]"
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "."))
