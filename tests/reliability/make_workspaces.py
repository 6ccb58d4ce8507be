"""Make isolated workspaces without end: `make_workspaces.py HOME SOURCE SESSION FIRST`.

Each one gets a file with its number; then a line with the number is printed. One of three is stored
and removed, as at the end of a run.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces


def main(home: str, source: str, session: str, first: str) -> None:
    """Make workspaces from a number on."""
    workspaces = IsolatedWorkspaces(f"{home}/isolated/{session}", source, home)
    for number in count(int(first)):
        run_id = f"1.{number}.1"
        print("start", number, flush=True)
        folder = workspaces.open(run_id, "", same_path=False)
        Path(folder.files.folder, f"new-{number}").write_text(f"{number}\n")
        print("written", number, flush=True)
        if number % 3 == 0:
            workspaces.store_work(run_id)
            workspaces.remove(run_id)


if __name__ == "__main__":
    main(*sys.argv[1:])
