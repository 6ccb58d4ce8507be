"""A session whose model follows a script; all else is real."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import pytest

from mudroom import Agent, Session, Tool, ToolCallBlock
from mudroom._engine.structured_output import EMIT_TOOL
from mudroom.models.scripted import Script, ScriptedModel, call
from mudroom.ports import Approver, Journal


class Choices(TypedDict, total=False):
    journal: str | Journal
    resume: str
    agents: Sequence[Agent]
    tools: Sequence[Tool]
    approver: Approver
    worker: str


class Open(Protocol):
    """Opens a session with a model that follows a script."""

    def __call__(
        self, script: Script, **choices: Unpack[Choices]
    ) -> AbstractAsyncContextManager[tuple[Session, ScriptedModel]]: ...


def emit(name: str, value: object) -> ToolCallBlock:
    """Return the call that emits a value."""
    return call(EMIT_TOOL, emit_variable_name=name, emit_variable_value=value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "paper.md").write_text("# On Mud\n\nby A. Boot\n")
    return folder


@pytest.fixture
def scripted(folder: Path, tmp_path: Path) -> Open:
    """Opens a session in the folder with a model that follows a script."""

    @asynccontextmanager
    async def open_session(
        script: Script, **choices: Unpack[Choices]
    ) -> AsyncGenerator[tuple[Session, ScriptedModel]]:
        model = ScriptedModel(script)
        home = str(tmp_path / "home")
        choices.setdefault("journal", "memory")
        async with Session(
            model=model, cwd=str(folder), home=home, environ={}, **choices
        ) as session:
            yield session, model

    return open_session
