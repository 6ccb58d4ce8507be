"""An agent from a file that other tools read, too: `.claude/agents/reviewer.md`, unchanged.

`MUDROOM_MODEL=anthropic:sonnet python examples/04_reviewer_from_a_file.py` uses a real model;
without the variable a script plays the model.
"""

import asyncio
import os
from pathlib import Path

from mudroom import Integrations, Session
from mudroom.testing import Answer, Request, ScriptedModel, call


def play_model(request: Request) -> Answer:
    """Read the file, then give an opinion, as a language model would."""
    if not request.turn:
        return [call("read", file_path="documents/on-mud.md")]
    longest = max(request.results[0].text.split("\n"), key=len)
    return (
        f"Nothing is hard to read. Its longest line has {len(longest)} characters, "
        "which is fine for prose."
    )


async def main() -> None:
    model = os.environ.get("MUDROOM_MODEL") or ScriptedModel(play_model)
    cwd = str(Path(__file__).parent)
    async with Session(
        model=model, cwd=cwd, integrations=Integrations(agent_files=True)
    ) as session:
        for agent in session.agents:
            print(f"{agent.name}: {agent.description}")
        report = await session.task("Review documents/on-mud.md.", agent="reviewer")
    tools = ", ".join(report.calls)
    print(f"\n{report.text}\n[used {tools}; changed {len(report.files_changed)} files]")


if __name__ == "__main__":
    asyncio.run(main())
