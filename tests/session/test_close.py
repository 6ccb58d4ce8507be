"""A closed session leaves no process behind."""

from __future__ import annotations

from pathlib import Path

from mudroom import Session
from mudroom.testing import ScriptedModel, call


def children() -> set[str]:
    """Process ids of this process's children."""
    return set(Path("/proc/self/task").glob("*/children").__next__().read_text().split())


async def test_what_starts_commands_ends_with_the_session(tmp_path: Path) -> None:
    before = children()
    model = ScriptedModel([[call("bash", command="echo hello")], "done"])
    async with Session(
        model=model, cwd=str(tmp_path), home=str(tmp_path / "home"), journal="memory"
    ) as session:
        report = await session.run("say hello")
    assert report.calls == {"bash": 1} and not report.failed
    assert children() <= before
