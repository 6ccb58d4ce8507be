"""A small tree of files, and the offline model with the real engine and the real tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mudroom import Report
from mudroom._session.session import Session
from mudroom_offline import OfflineModel

Ask = Callable[[dict[str, str], str], Awaitable[Report]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    async def run(tree: dict[str, str], prompt: str) -> Report:
        root = tmp_path / "tree"
        root.mkdir(exist_ok=True)
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        async with Session(
            model=OfflineModel(), cwd=str(root), home=str(tmp_path / "home"), journal="memory"
        ) as session:
            return await session.run(prompt)

    return run
