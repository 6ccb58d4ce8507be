"""`mudroom init`: a first AGENTS.md and a sample agent for a project. What is there already stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_AGENTS = """\
# {name}

What every agent that works here should know. Keep it short: it is sent with every run.

- What this is: (one sentence)
- Build and test: (the commands)
- Style: (what a reviewer would ask for)
- Do not touch: (folders, files)
"""

_REVIEWER = """\
---
name: reviewer
description: reviews a change or a file for mistakes and says where they are; give it the files or the diff
tools: read, glob, grep
---
You review code for a colleague. Read what you are given and what it touches; run nothing, change nothing.
Report mistakes first, each with file and line, why it is one, and what would mend it; then what is doubtful.
Say so when you found none. Never ask for clarification: work with what you have.
End with a clear, self-contained summary: only this last message is read.
"""


def write_starter_files(cwd: str) -> Iterator[str]:
    """Write them below a folder; a line about each. Raises OSError."""
    folder = Path(cwd)
    for path, text in (
        (folder / "AGENTS.md", _AGENTS.format(name=os.path.basename(os.path.realpath(cwd)))),
        (folder / ".agents" / "agents" / "reviewer.md", _REVIEWER),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except FileExistsError:
            yield f"{path.relative_to(folder)} is there already; it stays as it is."
        else:
            yield f"{path.relative_to(folder)} written."
