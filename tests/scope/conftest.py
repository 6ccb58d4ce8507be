"""A scope over a session whose model follows a script; all else is real."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session
from mudroom._engine.structured_output import EMIT_TOOL
from mudroom.models.scripted import Script, ScriptedModel, call

Opened = tuple[Session, ScriptedModel]
Open = Callable[..., AbstractAsyncContextManager[Opened]]


def emit(name: str, value: Any) -> Any:
    """The call that emits a value."""
    return call(EMIT_TOOL, emit_variable_name=name, emit_variable_value=value)


@pytest.fixture
def scripted(tmp_path: Path) -> Open:
    """Opens a session in a folder of its own with a model that follows a script."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "paper.md").write_text("# On Mud\n\nby A. Boot\n")

    @asynccontextmanager
    async def opened(script: Script, **settings: Any) -> AsyncGenerator[Opened]:
        model = ScriptedModel(script)
        given: dict[str, Any] = {
            "journal": "memory",
            "home": str(tmp_path / "home"),
            "environ": dict[str, str](),
            **settings,
        }
        async with Session(model=model, cwd=str(folder), **given) as session:
            yield session, model

    return opened
