"""Keys of all programs, precedence of files, and sessions that use agent files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent_files.corpus import make_file

from mudroom import Agent, Integrations, Session
from mudroom._adapters.agent_files import (
    BUILTIN_AGENTS,
    load_agent_file,
    load_agent_files,
    load_builtin_agent,
    read_builtin_source,
)
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.tools import BOARD_TOOLS
from mudroom._adapters.tools import make_builtin_tools as built_in_tools
from mudroom._core.agents import Mode
from mudroom._core.tool_names import select_tools
from mudroom._session.agent_catalog import KNOWN_TOOLS, find_agent
from mudroom.errors import UnknownName

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()

    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


def make_settings(folder: Path) -> dict[str, Any]:
    """Return the options of a session that reads the files of the project and the home folder."""
    return {
        "cwd": str(folder / "project"),
        "journal": "memory",
        "environ": {"HOME": str(folder / "home")},
        "integrations": Integrations(agent_files=True),
    }


def test_c11_the_built_in_agents_are_files_like_a_users(write: Write) -> None:
    for name in BUILTIN_AGENTS:
        agent, draft = load_agent_file(
            str(write(f"{name}.md", read_builtin_source(name))), tools=KNOWN_TOOLS
        )
        assert agent == load_builtin_agent(name)
        assert draft.diagnostics.items == []


def test_built_in_agents_have_no_broken_lines() -> None:
    for name in BUILTIN_AGENTS:
        assert "\\" not in load_builtin_agent(name).instructions


def test_c11_plan_and_explore_cannot_change_anything() -> None:
    for name in ("plan", "explore"):
        assert not set(load_builtin_agent(name).tools or ()) & {"bash", "write", "edit", "task"}


def test_the_known_tools_are_those_of_a_session() -> None:
    on_runs = {"task", "wait", "send_message", "task_stop", "compact"}
    others = {*BOARD_TOOLS, "skill", "web_fetch", "web_search"}
    assert set(KNOWN_TOOLS) == {*built_in_tools(), *on_runs, *others}


def test_c11_the_nearest_folder_takes_precedence_and_the_home_comes_last(
    write: Write, tmp_path: Path
) -> None:
    def put(path: str) -> None:
        write(path, make_file("name: x", f"description: {path}"))

    order = [
        "project/sub/.claude/agents/x.md",
        "project/.agents/agents/x.md",
        "project/.mudroom/agents/x.md",
        "project/.claude/agents/x.md",
        "project/.gemini/agents/x.md",
        "project/.opencode/agents/x.md",
        "project/.qwen/agents/x.md",
        "home/.agents/agents/x.md",
        "home/.mudroom/agents/x.md",
        "home/.claude/agents/x.md",
    ]
    for path in order:
        put(path)
    for at, first in enumerate(order):
        found = load_agent_files(
            str(tmp_path / "project" / "sub"), user_home=str(tmp_path / "home"), tools=KNOWN_TOOLS
        )
        assert [agent.description for agent in found.agents] == [first]
        assert found.paths["x"].endswith(first)
        clashes = [finding for finding in found.diagnostics if "takes precedence" in finding.text]
        assert [clash.path.removeprefix(f"{tmp_path}/") for clash in clashes] == order[at + 1 :]
        assert all(found.paths["x"] in clash.text for clash in clashes)
        (tmp_path / first).unlink()


def test_c11_codex_agents_declared_in_its_configuration_are_loaded(write: Write) -> None:
    config = """
model = "gpt-5.5"
[agents]
max_threads = 6
[agents.explorer]
description = "Read-only explorer."
config_file = "agents/explorer.toml"
[agents.docs_researcher]
description = "Verifies APIs."
config_file = "../roles/docs.toml"
[agents.bare]
description = "Has no file."
[agents.outside]
description = "Lies outside the project."
config_file = "../../outside.toml"
"""
    role = 'model = "gpt-5.4"\nsandbox_mode = "read-only"\ndeveloper_instructions = "Explore."\n'
    path = write("project/.codex/config.toml", config)
    write("project/.codex/agents/explorer.toml", role)
    write("project/roles/docs.toml", 'description = "Own."\ndeveloper_instructions = "Read."\n')
    write("outside.toml", role)
    loaded = load_agent_files(str(path.parent.parent), user_home="", tools=KNOWN_TOOLS)
    agents = {agent.name: agent for agent in loaded.agents}
    assert list(agents) == ["explorer", "docs_researcher"]
    assert agents["explorer"].description == "Read-only explorer."
    assert agents["explorer"].mode is Mode.PLAN and agents["explorer"].instructions == "Explore."
    assert agents["docs_researcher"].description == "Own."
    texts = [finding.text for finding in loaded.diagnostics]
    assert any("agents.bare has no config_file" in text for text in texts)
    assert any("a link that leads out of" in text for text in texts)
    assert len(texts) == 2


def test_c11_opencode_agents_in_subfolders_are_named_by_their_path(write: Write) -> None:
    path = write(
        "project/.opencode/agent/subagents/code/tester.md", make_file("description: Writes tests.")
    )
    write("project/.opencode/agent/subagents/README.md", "# Agents")
    loaded = load_agent_files(str(path.parents[4]), user_home="", tools=KNOWN_TOOLS)
    agents = {agent.name: agent for agent in loaded.agents}
    assert list(agents) == ["subagents-code-tester"]
    assert find_agent("subagents/code/tester", agents).description == "Writes tests."


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("# Fill forms\n\nUse pdftk.", "Fill forms"),
        ("---\nname: forms\n---\n\nFills forms.\nMore.", "Fills forms."),
    ],
)
def test_a17_a_skill_without_description_is_described_by_its_first_line(
    write: Write, text: str, description: str
) -> None:
    path = write("project/.claude/skills/forms/SKILL.md", text)
    loaded = load_agent_files(str(path.parents[3]), user_home="", tools=KNOWN_TOOLS)
    assert loaded.skills["forms"].description == description


def test_c11_plain_texts_that_are_no_yaml_are_read_as_written(write: Write) -> None:
    path = write(
        "project/.claude/agents/star.md",
        make_file("name: star", "description: **Bold**: @mention me", "tools: *"),
    )
    agent, _ = load_agent_file(str(path), "claude", tools=KNOWN_TOOLS)
    assert agent is not None
    assert agent.description == "**Bold**: @mention me" and agent.tools == ("*",)


def test_c11_folders_above_the_repository_are_not_searched(write: Write, tmp_path: Path) -> None:
    write(".claude/agents/outer.md", make_file("name: outer", "description: o"))
    assert load_agent_files(str(tmp_path / "project"), user_home="", tools=KNOWN_TOOLS).agents == ()


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (None, "bash read task mcp__a__b"),
        (("*",), "bash read task mcp__a__b"),
        (("*", "!bash"), "read task mcp__a__b"),
        (("read", "Shell"), "bash read"),
        (("mcp__a__*",), "mcp__a__b"),
        (("*", "!mcp__*", "!Shell"), "read task"),
        (("!*",), ""),
        ((), ""),
    ],
)
def test_c10_patterns_include_and_exclude(patterns: tuple[str, ...] | None, wanted: str) -> None:
    assert select_tools(["bash", "read", "task", "mcp__a__b"], patterns) == tuple(wanted.split())


async def test_c11_a_session_reads_agent_files_only_when_asked(
    write: Write, tmp_path: Path
) -> None:
    write(
        "project/.claude/agents/reviewer.md",
        make_file("name: reviewer", "description: Reviews.", "tools: Read"),
    )
    write("project/AGENTS.md", "Be brief.")

    async def load_names(**more: Any) -> tuple[set[str], str]:
        model = ScriptedModel(["Done."])
        given: dict[str, Any] = {
            "journal": "memory",
            "environ": {"HOME": str(tmp_path / "home")},
            **more,
        }
        async with Session(model=model, cwd=str(tmp_path / "project"), **given) as session:
            await session.run("Hello.")
            return {agent.name for agent in session.agents}, model.requests[0].system

    plain, system = await load_names()
    assert plain == set(BUILTIN_AGENTS)
    assert "Be brief." not in system
    asked, system = await load_names(integrations=Integrations(agent_files=True))
    assert asked == {*BUILTIN_AGENTS, "reviewer"}
    assert "Be brief." in system


async def test_c11_task_runs_an_agent_from_a_file_with_its_tools_and_context(
    write: Write, tmp_path: Path
) -> None:
    write(
        "project/.claude/agents/r.md",
        make_file("name: Code Reviewer", "description: Reviews.", "tools: Read", "model: sonnet"),
    )
    write(
        "project/.agents/agents/alone.md",
        make_file("name: alone", "description: Alone.", "context: none"),
    )
    write("project/AGENTS.md", "PROJECT-RULES")
    write("home/.claude/CLAUDE.md", "MY-RULES")

    def answer(request: Request) -> Answer:
        if "task" not in request.tools:
            return "Looked."
        asked = [
            call("task", prompt="a", agent="code_reviewer"),
            call("task", prompt="b", agent="Alone"),
        ]
        return "Done." if request.turn else asked

    model = ScriptedModel(answer)
    async with Session(model=model, **make_settings(tmp_path)) as session:
        await session.run("Review it.")
        notices = "\n".join(map(str, session.notices))
    by_prompt = {request.prompt: request for request in model.requests}
    assert by_prompt["a"].tools == ("read",)
    assert "PROJECT-RULES" in by_prompt["a"].system
    assert "MY-RULES" in by_prompt["a"].system
    assert "RULES" not in by_prompt["b"].system
    assert "agent code-reviewer: the model sonnet cannot be used (no key for it)" in notices
    assert "using agents of this folder: alone, code-reviewer" in notices


async def test_c11_task_lists_agents_and_an_unknown_one_is_an_error_with_the_nearest(
    write: Write, tmp_path: Path
) -> None:
    write("project/.claude/agents/r.md", make_file("name: reviewer", "description: Reviews code."))

    def answer(request: Request) -> Answer:
        return "Done." if request.turn else [call("task", prompt="a", agent="reviwer")]

    model = ScriptedModel(answer)
    async with Session(model=model, **make_settings(tmp_path)) as session:
        described = session._make_scope_runtime().tools["task"].description
        await session.run("Go.")
    assert "- reviewer: Reviews code." in described
    assert "- plan: " in described
    result = model.requests[1].results[0]
    assert result.error
    assert "Did you mean reviewer" in result.text


async def test_c11_any_agent_can_be_the_root_agent(write: Write, tmp_path: Path) -> None:
    write(
        "project/.opencode/agents/main.md",
        make_file("description: Talks.", "mode: primary", "tools: {'*': false, read: true}"),
    )
    model = ScriptedModel(["Hello."])
    without_home: dict[str, Any] = make_settings(tmp_path) | {"environ": {}}
    async with Session(model=model, agent="MAIN", **without_home) as session:
        await session.run("Hello.")
        assert "main" not in {agent.name for agent in session.agents}
    assert model.requests[0].system.startswith("You do one thing well.")
    assert model.requests[0].tools == ("read",)
    with pytest.raises(UnknownName, match="unknown agent 'nobody'"):
        async with Session(model=model, agent="nobody", **make_settings(tmp_path)):
            pass


async def test_c11_an_agent_calls_only_the_children_and_tools_it_allows() -> None:
    root = Agent(
        name="boss", instructions="Boss.", children=("plan",), child_tools=("read", "bash")
    )

    def answer(request: Request) -> Answer:
        if "task" not in request.tools:
            return "Planned."
        return (
            "Done."
            if request.turn
            else [call("task", prompt="a", agent="explore"), call("task", prompt="b", agent="plan")]
        )

    model = ScriptedModel(answer)
    async with Session(model=model, agent=root, journal="memory", environ={}) as session:
        await session.run("Go.")
    refused, planned = model.requests[-1].results
    assert refused.error
    assert "plan" in refused.text
    assert "Planned." in planned.text
    assert next(request.tools for request in model.requests if request.prompt == "b") == ("read",)


async def test_c3_an_agent_file_with_outputs_must_emit(write: Write, tmp_path: Path) -> None:
    write(
        "project/.agents/agents/counter.md",
        make_file("description: Counts.", "outputs: {n: {type: integer}}"),
    )

    def answer(request: Request) -> Answer:
        return (
            [call("self.emitvalue", emit_variable_name="n", emit_variable_value=3)]
            if request.turn
            else "Three."
        )

    async with Session(model=ScriptedModel(answer), **make_settings(tmp_path)) as session:
        report = await session.task("Count.", agent="COUNTER")
    assert report.outputs == {"n": 3}
