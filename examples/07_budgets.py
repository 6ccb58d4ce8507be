"""Budgets end softly: when one is used up, the run is asked for a summary, and its report says which limit it was."""

import asyncio
from typing import Any

from mudroom import Budget, Reason, Session
from mudroom.models.scripted import Request, ScriptedModel, call


async def restless(request: Request) -> Any:
    """A model that would read on for ever, each time another line; without tools it sums up what it has."""
    await asyncio.sleep(0.03)
    if not request.tools:
        return f"I read {request.turn} lines of it and was not done."
    return [call("read", file_path=__file__, offset=request.turn + 1, limit=1)]


async def main() -> None:
    async with Session(
        model=ScriptedModel(restless), cwd=__file__.rpartition("/")[0] or "."
    ) as session:
        for budget in (Budget(turns=5), Budget(input_tokens=2_000), Budget(seconds=0.5)):
            report = await session.task(
                "Read this file to its end.", agent="explore", budget=budget
            )
            assert report.reason in (Reason.MAX_TURNS, Reason.BUDGET, Reason.TIMEOUT, Reason.LOOP)
            print(
                f"{report.reason}: {report.turns} turns, {report.usage.total_tokens:,} tokens, {report.seconds:.1f} s: {report.text}"
            )


if __name__ == "__main__":
    asyncio.run(main())
