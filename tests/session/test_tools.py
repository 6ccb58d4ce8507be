"""Tools of sessions: lists in their descriptions, and sources whose changes count later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent, Budget, Effect, Integrations, Session, Tool, ToolCallBlock, ToolResult
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.listings import choose_description_length, count_listed_characters, find_entries
from mudroom.permissions import Permissions
from mudroom.permissions.rules import Rule, Verdict
from mudroom.ports import ToolContext
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..waiting import wait_until

MANY = [
    Agent(name=f"worker-{number}", description=f"Does job {number}. " + "Knows much. " * 30)
    for number in range(200)
]
SKILL = "---\nname: skill-{number}\ndescription: {text}\n---\nDo it.\n"


async def list_tools(
    folder: Path, model: str = "anthropic:claude-sonnet-4-5", **options: Any
) -> dict[str, dict[str, Any]]:
    """Return the tools of the first request, by name."""
    async with ModelServer(lambda _: "Done.") as server:
        environ = {
            "HOME": str(folder / "home"),
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
        }
        options = {"model": model, "environ": environ, "journal": "memory", **options}
        async with Session(cwd=str(folder), **options) as session:
            await session.run("Hello")
    return {tool["name"]: tool for tool in server.requests[0].json["tools"]}


async def test_agents_and_skills_take_one_percent_of_the_window(tmp_path: Path) -> None:
    for number in range(100):
        path = tmp_path / ".claude" / "skills" / f"skill-{number}" / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(SKILL.format(number=number, text="Helps with forms. " * 20))
    (tmp_path / "plain").mkdir()
    plain = await list_tools(tmp_path / "plain")
    tools = await list_tools(tmp_path, agents=MANY, integrations=Integrations(agent_files=True))
    added = len(json.dumps([tools["task"], tools["skill"]])) - len(json.dumps(plain["task"]))
    assert added < 200_000 / 100 * 4 + 600
    names = tools["task"]["input_schema"]["properties"]["agent"]["enum"]
    assert {agent.name for agent in MANY} <= set(names)
    for number in range(100):
        assert f"skill-{number}" in tools["skill"]["description"]


async def test_a_few_agents_are_listed_whole_and_offer_no_search(tmp_path: Path) -> None:
    task = (await list_tools(tmp_path, agents=MANY[:3]))["task"]
    assert all(agent.description in task["description"] for agent in MANY[:3])
    assert "find" not in task["input_schema"]["properties"]
    assert task["input_schema"]["required"] == ["prompt"]


async def test_a_larger_window_lists_more(tmp_path: Path) -> None:
    small = (await list_tools(tmp_path, agents=MANY[:60]))["task"]["description"]
    large = await list_tools(tmp_path, "anthropic:claude-opus-5-5", agents=MANY[:60])
    assert len(large["task"]["description"]) > 1.5 * len(small)
    assert "- worker-7: Does job 7." in small


async def test_agents_that_are_not_listed_whole_can_be_found(tmp_path: Path) -> None:
    model = ScriptedModel([[call("task", find="job 137")], "Done."])
    async with Session(
        model=model, agents=MANY, cwd=str(tmp_path), journal="memory", environ={}
    ) as session:
        report = await session.run("Hello")
    text = model.requests[1].results[0].text
    assert text.startswith(f"- worker-137: {MANY[137].description}")
    assert report.text == "Done."


async def test_agents_that_a_rule_denies_are_not_listed(tmp_path: Path) -> None:
    permissions = Permissions.of(deny=["Task(Worker_1)", "task(worker-2*)", "Bash(rm *)"])
    tools = await list_tools(tmp_path, agents=MANY[:30], permissions=permissions)
    names = tools["task"]["input_schema"]["properties"]["agent"]["enum"]
    assert [name for name in names if name.startswith("worker-")] == [
        f"worker-{number}" for number in (0, *range(3, 20))
    ]
    assert "worker-2:" not in tools["task"]["description"]


async def test_the_models_that_task_offers_are_those_with_a_key(tmp_path: Path) -> None:
    models = (await list_tools(tmp_path))["task"]["input_schema"]["properties"]["model"]["enum"]
    assert models[0] == "anthropic:claude-sonnet-5-5"
    assert all(name.startswith("anthropic:") for name in models)


async def test_without_a_choice_of_models_task_offers_none(tmp_path: Path) -> None:
    async with ModelServer(lambda _: "Done.") as server:
        environ = {"OPENAI_BASE_URL": f"{server.url}/v1"}
        async with Session(
            model="openai:m", cwd=str(tmp_path), journal="memory", environ=environ
        ) as session:
            await session.run("Hello")
    tools = {tool["function"]["name"]: tool for tool in server.requests[0].json["tools"]}
    assert "model" not in tools["task"]["function"]["parameters"]["properties"]


@pytest.mark.parametrize("worker", ["process:1"])
async def test_children_in_worker_processes_read_the_same_lists(
    worker: str, tmp_path: Path
) -> None:
    def delegate(request: ServerRequest) -> ServerAnswer:
        if request.turn == 0 and "grandparent" in request.body.decode():
            return [ToolCallBlock("c1", "task", {"prompt": "Do it.", "agent": "boss"})]
        return "Done."

    boss = Agent(name="boss", description="Delegates.", tools=("*", "task"))
    async with ModelServer(delegate) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        async with Session(
            model="anthropic:claude-sonnet-4-5",
            agents=[*MANY, boss],
            cwd=str(tmp_path),
            home=str(tmp_path / "h"),
            environ=environ,
            worker=worker,
            prompt_budget=Budget(depth=2),
        ) as session:
            await session.run("You are the grandparent.")
    parent, child, *_ = (
        [tool["description"] for tool in request.json["tools"] if tool["name"] == "task"]
        for request in server.requests
    )
    assert parent == child != []


def test_short_descriptions_stay_whole_and_long_ones_share_the_rest() -> None:
    entries = [("a", "x" * 10), ("b", "y" * 500), ("c", "z" * 500)]
    length = choose_description_length(entries, 15 + 10 + 200)
    assert length == 100
    assert choose_description_length(entries, 2_000) is None
    assert choose_description_length(entries, 40) == 0
    assert choose_description_length([], 0) is None


@pytest.mark.parametrize(
    ("window", "expected"),
    [(0, 5_120), (4_096, 1_000), (200_000, 8_000), (1_000_000, 16_000)],
)
def test_the_lists_grow_with_the_window_between_two_bounds(window: int, expected: int) -> None:
    assert count_listed_characters(window) == expected


def test_the_best_entries_come_first() -> None:
    entries = [("a", "Reads CSV."), ("pdf", "Fills forms."), ("b", "Fills CSV forms.")]
    assert find_entries("csv FORMS", entries).splitlines()[0] == "- b: Fills CSV forms."
    assert find_entries("nothing", entries) == ""


def make_tool(name: str, answer: str) -> Tool:
    async def run(context: ToolContext, arguments: dict[str, object]) -> ToolResult:
        return ToolResult(answer)

    schema = {"type": "object"}
    return Tool(
        name=name, description="", parameters=schema, parse=dict, run=run, effect=Effect.PURE
    )


class FolderSource:
    """Source of tools from a folder: each file is a tool that returns the text of the file."""

    def __init__(self, folder: Path, **texts: str) -> None:
        self.name = folder.name
        self.is_open = False
        self._folder = folder
        self._listed: dict[str, str] = {}
        for name, text in texts.items():
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    async def open(self) -> None:
        self._read()
        self.is_open = True

    async def list(self) -> Sequence[Tool]:
        self._listed = self._read()
        return [make_tool(name, text) for name, text in self._listed.items()]

    async def wait_for_change(self) -> None:
        while self._read() == self._listed:  # noqa: ASYNC110  folders send no notice
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        self.is_open = False

    def _read(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in sorted(self._folder.iterdir())}


async def wait_until_removed(session: Session, name: str) -> None:
    await wait_until(lambda: name not in session.tools)


def open_session(
    folder: Path, *sources: FolderSource, permissions: Permissions | None = None
) -> Session:
    def answer(request: Request) -> Answer:
        return f"answer: {request.results[0].text}" if request.turn else [call("weather")]

    return Session(
        model=ScriptedModel(answer),
        cwd=str(folder),
        home=str(folder / "home"),
        integrations=Integrations(tool_sources=sources),
        permissions=permissions or Permissions(),
        journal="memory",
        sandbox="off",
        environ={},
    )


async def test_tools_of_a_source_are_used_and_the_source_is_closed(tmp_path: Path) -> None:
    source = FolderSource(tmp_path / "tools", weather="rain")
    async with open_session(tmp_path, source) as session:
        assert source.is_open
        assert "weather" in session.tools
        assert (await session.run("How is the weather?")).text == "answer: rain"
    assert not source.is_open


async def test_a_change_counts_for_the_next_run(tmp_path: Path) -> None:
    source = FolderSource(tmp_path / "tools", weather="rain", tide="low")
    async with open_session(tmp_path, source) as session:
        (tmp_path / "tools" / "weather").write_text("sun")
        (tmp_path / "tools" / "tide").unlink()
        await wait_until_removed(session, "tide")
        assert (await session.run("How is the weather?")).text == "answer: sun"


async def test_a_source_never_replaces_another_tool(tmp_path: Path) -> None:
    first = FolderSource(tmp_path / "first", weather="rain")
    second = FolderSource(tmp_path / "second", weather="sun", read="wrong", tide="low")
    async with open_session(tmp_path, first, second) as session:
        assert (await session.run("How is the weather?")).text == "answer: rain"
        for name in ("weather", "read", "tide"):
            (tmp_path / "second" / name).unlink()
        await wait_until_removed(session, "tide")
        assert {"weather", "read"} <= set(session.tools)


async def test_a_source_that_cannot_be_opened_is_a_notice(tmp_path: Path) -> None:
    missing = FolderSource(tmp_path / "missing")
    source = FolderSource(tmp_path / "tools", weather="rain")
    async with open_session(tmp_path, missing, source) as session:
        assert session.notices[-1].text.startswith("the tools of missing are missing: [Errno 2]")
        assert "weather" in session.tools
    assert not missing.is_open


async def test_a_denied_tool_is_left_out(tmp_path: Path) -> None:
    permissions = Permissions(rules=(Rule(Verdict.DENY, "weather"),))
    source = FolderSource(tmp_path / "tools", weather="rain")
    async with open_session(tmp_path, source, permissions=permissions) as session:
        assert "weather" not in session.tools
