"""The longest single answer: of the session, of an agent, of a scope; sent with every request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import (
    Agent,
    Integrations,
    ModelOptions,
    Session,
    TextBlock,
    ToolCallBlock,
)
from mudroom._core.messages import StopReason
from mudroom.scope import ModelConfig, PromptConfig
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..worker_kinds import WORKERS

AGENT_FILE = """---
name: brief
description: Answers in brief.
max-output-tokens: 300
---
Be brief.
"""


def delegate(request: ServerRequest) -> ServerAnswer:
    """Give one task to the agents `brief` and `general`, then end."""
    if "task" in request.tools and request.turn == 0:
        tasks = [{"prompt": "Do it.", "agent": agent} for agent in ("brief", "general")]
        return [ToolCallBlock(f"c{number}", "task", task) for number, task in enumerate(tasks)]
    return (TextBlock("Done."),)


@asynccontextmanager
async def open_session(
    server: ModelServer, folder: Path, **options: Any
) -> AsyncGenerator[Session]:
    environ = {
        "HOME": str(folder / "home"),
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": server.url,
    }
    async with Session(
        model="anthropic:m", cwd=str(folder), home=str(folder / "h"), environ=environ, **options
    ) as session:
        yield session


def list_limits(server: ModelServer) -> list[int]:
    return sorted(request.json["max_tokens"] for request in server.requests)


@pytest.mark.parametrize("worker", WORKERS)
async def test_session_and_agents_set_the_longest_answer(worker: str, tmp_path: Path) -> None:
    brief = Agent(name="brief", description="Brief.", instructions="B.", max_output_tokens=300)
    async with ModelServer(delegate) as server:
        async with open_session(
            server,
            tmp_path,
            agents=[brief],
            model_options=ModelOptions(max_output_tokens=20_000),
            worker=worker,
        ) as session:
            await session.run("Delegate.")
    assert list_limits(server) == [300, 20_000, 20_000, 20_000]


async def test_an_agent_file_sets_the_longest_answer(tmp_path: Path) -> None:
    path = tmp_path / ".agents" / "agents" / "brief.md"
    path.parent.mkdir(parents=True)
    path.write_text(AGENT_FILE)
    async with ModelServer(delegate) as server:
        async with open_session(
            server, tmp_path, integrations=Integrations(agent_files=True)
        ) as session:
            await session.run("Delegate.")
    assert list_limits(server) == [300, 8_000, 8_192, 8_192]


async def test_a_scope_sets_the_longest_answer(tmp_path: Path) -> None:
    async with ModelServer(delegate) as server:
        async with open_session(server, tmp_path) as session:
            await session.scope(
                "short", PromptConfig(system_prompt="Go."), ModelConfig(max_output_tokens=70)
            )
    assert list_limits(server) == [70]


async def test_the_error_of_a_cut_answer_names_the_setting(tmp_path: Path) -> None:
    def cut(request: ServerRequest) -> ServerAnswer:
        return Fault("So f", stop_reason=StopReason.LENGTH)

    async with ModelServer(cut) as server:
        async with open_session(
            server, tmp_path, model_options=ModelOptions(max_output_tokens=50)
        ) as session:
            report = await session.run("Write.")
    assert list_limits(server) == [50]
    assert "--max-output-tokens" in report.error
