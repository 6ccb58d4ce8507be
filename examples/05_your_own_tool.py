"""A tool of your own: a function with type hints and a docstring. The model reads both.

`MUDROOM_MODEL=anthropic:sonnet python examples/05_your_own_tool.py` uses a real model; without
the variable a script plays the model.
"""

import asyncio
import os
from typing import Annotated

from mudroom import Effect, Session, ToolContext, tool
from mudroom.testing import ScriptedModel, call

STOCK = {"boots": 3, "umbrellas": 0}


@tool(effect=Effect.PURE)
async def in_stock(ctx: ToolContext, item: Annotated[str, "plural, lower case"]) -> int:
    """How many of an item there are."""
    # `memo` keeps what the tools of one run remember between calls.
    seen = ctx.memo.setdefault("in_stock", [])
    seen.append(item)
    if item not in STOCK:
        # The model reads the message and can try again.
        raise ValueError(f"there is no {item}; there are {', '.join(STOCK)}")
    return STOCK[item]


SCRIPT = [
    [call("in_stock", item="boots"), call("in_stock", item="hats")],
    "There are 3 pairs of boots. Hats are not kept.",
]


async def main() -> None:
    model = os.environ.get("MUDROOM_MODEL") or ScriptedModel(SCRIPT)
    async with Session(model=model, tools=[in_stock]) as session:
        report = await session.run("How many boots and hats are there?")
    print(report.text)
    print(f"[in_stock was called {report.calls['in_stock']} times, {report.failed} failed]")


if __name__ == "__main__":
    asyncio.run(main())
