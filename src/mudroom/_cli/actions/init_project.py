"""`mudroom init`: writes a first AGENTS.md and a sample agent; keeps existing files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .load_settings import load_settings

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
description: reviews a change or a file for mistakes; give it the files or the diff
tools: read, glob, grep
---
You review code for a colleague. Read the given files and the code they affect.
Run nothing, change nothing.
Report mistakes first, each with file and line, the reason, and the fix; then list open questions.
If you find no mistake, say so. Never ask for clarification: work with what you have.
End with a clear, self-contained summary: only this last message is read.
"""


def init_project(cwd: str) -> None:
    # Fail early for a missing folder or wrong settings.
    load_settings(cwd)
    for line in write_starter_files(cwd):
        print(line)


def write_starter_files(cwd: str) -> Iterator[str]:
    folder = Path(cwd)
    for path, text in (
        (folder / "AGENTS.md", _AGENTS.format(name=os.path.basename(os.path.realpath(cwd)))),
        (folder / ".agents" / "agents" / "reviewer.md", _REVIEWER),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # A folder's name may contain bytes that are not UTF-8.
            with path.open("x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except FileExistsError:
            yield f"{path.relative_to(folder)} exists already; it was not changed."
        else:
            yield f"{path.relative_to(folder)} written."
