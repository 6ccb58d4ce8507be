"""An agent from a file that another tool reads, too: `.claude/agents/reviewer.md`, unchanged and read-only.

`MUDROOM_MODEL=anthropic:sonnet python examples/04_reviewer_from_a_file.py` asks a real model; without it, a few lines stand in.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from mudroom import Session
from mudroom.models.scripted import Request, ScriptedModel, call


def stand_in(request: Request) -> Any:
    """What a language model would do: read the file, then say what it thinks."""
    if not request.turn:
        return [call("read", file_path="documents/on-mud.md")]
    longest = max(request.results[0].text.split("\n"), key=len)
    return f"Nothing is hard to read. Its longest line has {len(longest)} characters, which is fine for prose."


async def main() -> None:
    here = Path(__file__).parent
    model = os.environ.get("MUDROOM_MODEL") or ScriptedModel(stand_in)
    async with Session(model=model, cwd=str(here), agent_files=True) as session:
        for agent in session.agents:
            print(f"{agent.name}: {agent.description}")
        report = await session.task("Review documents/on-mud.md.", agent="reviewer")
    print(
        f"\n{report.text}\n[used {', '.join(report.calls)}; changed {len(report.files_changed)} files]"
    )


if __name__ == "__main__":
    asyncio.run(main())
