"""Models of children by agent, and the longest single answer, sent with every request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent, Children, Integrations, ModelOptions, Session, TextBlock, ToolCallBlock
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.journals.sessions import open_store, read_events
from mudroom._core.events import RunStarted, StoredEvent, TurnFinished
from mudroom._core.messages import StopReason
from mudroom._replay import replay
from mudroom._session.agent_catalog import parse_child_models
from mudroom.errors import UnknownName, UsageError
from mudroom.scope import ModelConfig, PromptConfig
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..worker_kinds import WORKERS

PARENT = "anthropic:claude-sonnet-4-5"
RULES = "Explore=anthropic:claude-haiku-4-5; *=anthropic:claude-opus-4-5"
OWN = Agent(name="own", description="Has a model.", model="anthropic:claude-opus-5-5")
CALLS = (
    {"prompt": "A", "agent": "explore"},
    {"prompt": "B", "agent": "general"},
    {"prompt": "C", "agent": "own"},
    {"prompt": "D", "agent": "explore", "model": "anthropic:claude-opus-5-5"},
    {"prompt": "E", "agent": "explore"},
    {"prompt": "F", "agent": "own", "model": "inherit"},
)
EXPECTED = {
    "PARENT": PARENT,
    "A": "anthropic:claude-haiku-4-5",
    "B": "anthropic:claude-opus-4-5",
    "C": "anthropic:claude-opus-5-5",
    "D": "anthropic:claude-opus-5-5",
    "E": "anthropic:claude-haiku-4-5",
    "F": "anthropic:claude-opus-4-5",
}


def delegate(request: ServerRequest) -> ServerAnswer:
    """Answer each prompt of the parent with calls of agents, and all else with a text."""
    if b"PARENT" not in request.body or request.turn % 2:
        return "Done."
    return [ToolCallBlock(f"c{request.turn}_{n}", "task", call) for n, call in enumerate(CALLS)]


def open_session(folder: Path, url: str, **options: Any) -> Session:
    defaults: dict[str, Any] = {
        "model": PARENT,
        "agents": [OWN],
        "environ": {"HOME": str(folder), "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url},
        "cwd": str(folder),
        "home": str(folder / "home"),
        "journal": "memory",
        "sandbox": "off",
    }
    return Session(**(defaults | options))


def map_prompts_to_models(events: list[StoredEvent]) -> dict[str, str]:
    """Return prompt -> model of the brief, which also answered."""
    prompts = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    for event in events:
        if isinstance(event, TurnFinished):
            answered_by = event.message.answered_by or prompts[event.run].model
            assert answered_by == prompts[event.run].model
    return {brief.prompt: brief.model for brief in prompts.values()}


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize(
    "rules",
    [
        RULES,
        {"explore": "anthropic:claude-haiku-4-5", "*": "anthropic:claude-opus-4-5"},
    ],
    ids=["text", "mapping"],
)
async def test_a_rule_chooses_the_model_of_an_agent(
    tmp_path: Path, worker: str, rules: str | Mapping[str, str]
) -> None:
    journal = MemoryJournal()
    async with ModelServer(delegate) as server:
        async with open_session(
            tmp_path, server.url, children=Children(model=rules), worker=worker, journal=journal
        ) as session:
            assert (await session.run("PARENT")).ok
    assert map_prompts_to_models(journal.events) == EXPECTED
    asked = {request.model for request in server.requests}
    assert asked == {model.partition(":")[2] for model in EXPECTED.values()}


async def test_an_agent_without_a_rule_uses_the_model_of_its_parent(tmp_path: Path) -> None:
    journal = MemoryJournal()
    rules = {"explore": "anthropic:claude-haiku-4-5", "own": "inherit"}
    async with ModelServer(delegate) as server:
        async with open_session(
            tmp_path, server.url, children=Children(model=rules), journal=journal
        ) as session:
            await session.run("PARENT")
    assert map_prompts_to_models(journal.events) == EXPECTED | {"B": PARENT, "F": PARENT}


async def test_rules_hold_for_tasks_maps_and_scopes(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with ModelServer(lambda _: "Done.") as server:
        async with open_session(
            tmp_path, server.url, children=Children(model=RULES), journal=journal
        ) as session:
            await session.task("A", agent="explore")
            await session.map(["B"])
            await session.scope("scout", PromptConfig(system_prompt="F"))
    models = {
        event.brief.agent.name: event.brief.model
        for event in journal.events
        if isinstance(event, RunStarted)
    }
    assert models == {
        "explore": "anthropic:claude-haiku-4-5",
        "general": "anthropic:claude-opus-4-5",
        "scout": "anthropic:claude-opus-4-5",
    }


async def test_a_session_with_rules_is_replayed_also_after_a_change_of_the_rules(
    tmp_path: Path,
) -> None:
    async with ModelServer(delegate) as server:
        async with open_session(
            tmp_path, server.url, children=Children(model=RULES), journal="sqlite"
        ) as session:
            await session.run("PARENT")
        async with open_session(
            tmp_path,
            server.url,
            children=Children(model="general=offline"),
            journal="sqlite",
            resume=session.id,
        ) as session:
            await session.run("PARENT again")
    store = open_store(str(tmp_path / "home"))
    events = await read_events(store, session.id)
    assert map_prompts_to_models(events) == EXPECTED | {
        "PARENT again": PARENT,
        "A": PARENT,
        "B": "offline:rules",
        "E": PARENT,
        "F": PARENT,
    }
    assert await replay(events) == events


@pytest.mark.parametrize(
    ("rules", "message", "remedy"),
    [
        ("exlore=offline", "unknown agent 'exlore' (child_model)", "explore"),
        ("explore=antropic:haiku", "unknown model provider 'antropic'", "anthropic"),
        ("explore=groq", "no key for groq", "GROQ_API_KEY"),
        ("explore=offline; haiku", "no model for the agent 'haiku'", "*=sonnet"),
        ("explore=", "no model for the agent 'explore'", "explore=haiku"),
        ("explore=offline; Explore=offline", "two models for the agent Explore", "one"),
        ("=offline", "no agent for the model 'offline'", "*=sonnet"),
        ({"explore": ""}, "no model for the agent 'explore'", "explore=haiku"),
    ],
)
async def test_a_wrong_rule_is_refused_at_the_start(
    tmp_path: Path, rules: str | Mapping[str, str], message: str, remedy: str
) -> None:
    with pytest.raises(UsageError) as caught:
        async with open_session(tmp_path, "http://127.0.0.1:1", children=Children(model=rules)):
            pass
    assert message in str(caught.value)
    assert isinstance(caught.value, UnknownName) == message.startswith("unknown agent")
    assert "child_model" in caught.value.where
    assert remedy in caught.value.remedy


async def test_a_rule_of_a_settings_file_for_an_unknown_agent_is_a_notice(tmp_path: Path) -> None:
    rules = "exlore=offline; explore=offline"
    async with open_session(
        tmp_path,
        "http://127.0.0.1:1",
        children=Children(model=rules),
        integrations=Integrations(origins={"child_model": "settings.toml:3"}),
    ) as session:
        notices = " ".join(map(str, session.notices))
    assert "settings.toml:3: rule not used: unknown agent 'exlore'" in notices


def test_a_rule_may_name_several_models() -> None:
    assert parse_child_models("explore = haiku,openai:gpt-6.1-sol ;*=sonnet;") == {
        "explore": "haiku,openai:gpt-6.1-sol",
        "*": "sonnet",
    }
    assert parse_child_models("haiku,offline") == {"*": "haiku,offline"}


AGENT_FILE = """---
name: brief
description: Answers in brief.
max-output-tokens: 300
---
Be brief.
"""


def delegate_in_brief(request: ServerRequest) -> ServerAnswer:
    """Give one task to the agents `brief` and `general`, then end."""
    if "task" in request.tools and request.turn == 0:
        tasks = [{"prompt": "Do it.", "agent": agent} for agent in ("brief", "general")]
        return [ToolCallBlock(f"c{number}", "task", task) for number, task in enumerate(tasks)]
    return (TextBlock("Done."),)


def list_limits(server: ModelServer) -> list[int]:
    return sorted(request.json["max_tokens"] for request in server.requests)


@pytest.mark.parametrize("worker", WORKERS)
async def test_session_and_agents_set_the_longest_answer(worker: str, tmp_path: Path) -> None:
    brief = Agent(name="brief", description="Brief.", instructions="B.", max_output_tokens=300)
    async with ModelServer(delegate_in_brief) as server:
        async with open_session(
            tmp_path,
            server.url,
            model="anthropic:m",
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
    async with ModelServer(delegate_in_brief) as server:
        async with open_session(
            tmp_path, server.url, model="anthropic:m", integrations=Integrations(agent_files=True)
        ) as session:
            await session.run("Delegate.")
    assert list_limits(server) == [300, 8_000, 8_192, 8_192]


async def test_a_scope_sets_the_longest_answer(tmp_path: Path) -> None:
    async with ModelServer(delegate_in_brief) as server:
        async with open_session(tmp_path, server.url, model="anthropic:m") as session:
            await session.scope(
                "short", PromptConfig(system_prompt="Go."), ModelConfig(max_output_tokens=70)
            )
    assert list_limits(server) == [70]


async def test_the_error_of_a_cut_answer_names_the_setting(tmp_path: Path) -> None:
    def cut(request: ServerRequest) -> ServerAnswer:
        return Fault("So f", stop_reason=StopReason.LENGTH)

    async with ModelServer(cut) as server:
        async with open_session(
            tmp_path,
            server.url,
            model="anthropic:m",
            model_options=ModelOptions(max_output_tokens=50),
        ) as session:
            report = await session.run("Write.")
    assert list_limits(server) == [50]
    assert "--max-output-tokens" in report.error
