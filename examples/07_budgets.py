"""Limits end softly: the run is asked for a summary, and its report names the limit."""

import asyncio
from pathlib import Path

from mudroom import Budget, Reason, Session
from mudroom.testing import Answer, Request, ScriptedModel, call


async def restless(request: Request) -> Answer:
    """Read one more line each turn, without end; summarise when there are no tools."""
    await asyncio.sleep(0.03)
    if not request.tools:
        return f"I read {request.turn} lines of it and was not done."
    return [call("read", file_path=__file__, offset=request.turn + 1, limit=1)]


async def main() -> None:
    model = ScriptedModel(restless)
    async with Session(model=model, cwd=str(Path(__file__).parent)) as session:
        for budget in (Budget(turns=5), Budget(input_tokens=2_000), Budget(seconds=0.5)):
            report = await session.task(
                "Read this file to its end.", agent="explore", budget=budget
            )
            assert report.reason in (Reason.MAX_TURNS, Reason.BUDGET, Reason.TIMEOUT, Reason.LOOP)
            tokens = report.usage.total_tokens
            figures = f"{report.turns} turns, {tokens:,} tokens, {report.seconds:.1f} s"
            print(f"{report.reason}: {figures}: {report.text}")


if __name__ == "__main__":
    asyncio.run(main())
