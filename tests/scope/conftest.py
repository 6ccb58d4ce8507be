"""A session whose model follows a script; all else is real."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import pytest

from mudroom import (
    Agent,
    ContextState,
    Integrations,
    ModelConfig,
    OutputConfig,
    PromptConfig,
    RunConfig,
    Session,
    SubAgentScope,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolConfig,
)
from mudroom._adapters.models.scripted import Script, ScriptedModel, call
from mudroom._core.messages import Message
from mudroom._engine.structured_output import EMIT_TOOL
from mudroom.permissions.rules import Permissions
from mudroom.ports import Approver, Journal

PROMPT = PromptConfig(system_prompt="Extract title and author from ${doc_path}.")
CONTEXT = ContextState(doc_path="paper.md")
OUTPUTS = OutputConfig(outputs={"title": "the document's title", "author": "its author"})


class Choices(TypedDict, total=False):
    journal: str | Journal
    resume: str
    agents: Sequence[Agent]
    tools: Sequence[Tool]
    approver: Approver
    worker: str
    permissions: Permissions
    integrations: Integrations


class Open(Protocol):
    """Opens a session with a model that follows a script."""

    def __call__(
        self, script: Script, **choices: Unpack[Choices]
    ) -> AbstractAsyncContextManager[tuple[Session, ScriptedModel]]: ...


def emit(name: str, value: object) -> ToolCallBlock:
    """Return the call that emits a value."""
    return call(EMIT_TOOL, emit_variable_name=name, emit_variable_value=value)


class ScopeConfigs(TypedDict, total=False):
    prompt_config: PromptConfig
    model_config: ModelConfig
    run_config: RunConfig
    tool_config: ToolConfig
    output_config: OutputConfig
    on_message: Callable[[str], object]


async def create_scope(session: Session, **configs: Unpack[ScopeConfigs]) -> SubAgentScope:
    """Create a scope with a system prompt that needs CONTEXT, unless the caller gives another."""
    configs.setdefault("prompt_config", PROMPT)
    configs.setdefault("model_config", ModelConfig())
    configs.setdefault("run_config", RunConfig())
    return await SubAgentScope.create("doc-extractor", session, **configs)


async def run_scope(
    session: Session, context: ContextState = CONTEXT, **configs: Unpack[ScopeConfigs]
) -> SubAgentScope:
    """Create a scope, run it to its end and return it."""
    scope = await create_scope(session, **configs)
    await scope.run_non_interactive(context)
    return scope


def join_texts(message: Message) -> str:
    """Return the text blocks of a message."""
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))


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
