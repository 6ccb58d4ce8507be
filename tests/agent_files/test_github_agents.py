"""Agents of GitHub Copilot and VS Code: their places, tools and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent
from mudroom._adapters.agent_files import LoadedAgents, load_agent_files
from mudroom._adapters.agent_files.safe_read import Severity
from mudroom._core.agents import Mode
from mudroom._session.agent_catalog import KNOWN_TOOLS


def load(folder: Path, path: str, *lines: str) -> LoadedAgents:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "\n".join(["---", "description: Reviews code.", *lines, "---"])
    file.write_text(f"{head}\nReview it.\n", "utf-8")
    return load_agent_files(str(folder), user_home=str(folder / "home"), tools=KNOWN_TOOLS)


def load_one(folder: Path, *lines: str, path: str = ".github/agents/review.agent.md") -> Agent:
    loaded = load(folder, path, *lines)
    assert not [item for item in loaded.diagnostics if item.severity is Severity.ERROR]
    (agent,) = (*loaded.agents, *loaded.main_agents)
    return agent


@pytest.mark.parametrize(
    ("tools", "wanted"),
    [
        ("['search', 'edit', 'execute']", ("grep", "glob", "edit", "write", "bash")),
        ("[read, web, agent, todo]", ("read", "web_fetch", "web_search", "task", "todo")),
        ("['edit/editFiles', 'search/codebase']", ("edit", "write", "grep", "glob")),
        ("['codebase', 'fetch', 'runCommands']", ("grep", "glob", "web_fetch", "bash")),
        ("[edit/createFile, read/readFile]", ("write", "read")),
        ("'search, web/fetch'", ("grep", "glob", "web_fetch")),
        ("[read, problems, vscode/openSimpleBrowser, runTests]", ("read",)),
        (
            "[microsoft.docs.mcp/*, github/search_issues]",
            ("mcp__microsoft_docs_mcp__*", "mcp__github__search_issues"),
        ),
        ("['Microsoft Docs', terraform]", ("mcp__Microsoft_Docs__*", "mcp__terraform__*")),
        ("['*']", ("*",)),
        ("[read, '!edit']", ("read", "!edit", "!write")),
    ],
)
def test_the_tools_of_github_are_those_of_the_same_use_here(
    tmp_path: Path, tools: str, wanted: tuple[str, ...]
) -> None:
    assert load_one(tmp_path, f"tools: {tools}").tools == wanted


def test_tools_without_a_counterpart_are_noted_and_give_no_others(tmp_path: Path) -> None:
    loaded = load(tmp_path, ".github/agents/x.agent.md", "tools: [problems, changes]")
    assert loaded.agents[0].tools == ()
    texts = [item.text for item in loaded.diagnostics]
    assert texts == [
        "has no counterpart here: problems, changes",
        "none of its tools has a counterpart: it gets none",
    ]


def test_edit_is_a_group_only_in_the_files_of_github(tmp_path: Path) -> None:
    lines = ("name: x", "tools: [edit]")
    assert load_one(tmp_path / "a", *lines, path=".claude/agents/x.agent.md").tools == (
        "edit",
        "write",
    )
    assert load_one(tmp_path / "b", *lines, path=".claude/agents/x.md").tools == ("edit",)


@pytest.mark.parametrize(
    "path",
    [
        ".github/agents/review.agent.md",
        ".github/agents/review.md",
        ".claude/agents/review.agent.md",
    ],
)
def test_an_agent_without_a_name_is_called_as_its_file(tmp_path: Path, path: str) -> None:
    assert load_one(tmp_path, path=path).name == "review"


def test_the_agents_of_the_user_are_found(tmp_path: Path) -> None:
    assert load_one(tmp_path, path="home/.copilot/agents/mine.agent.md").name == "mine"


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("Claude Sonnet 4.5 (copilot)", "claude-sonnet-4-5"),
        ("GPT-5.3-Codex", "gpt-5.3-codex"),
        ("claude-opus-4.7", "claude-opus-4-7"),
        ("['GPT-5.4', 'Claude Haiku 4.5 (copilot)']", "gpt-5.4,claude-haiku-4-5"),
        ("GPT-4.1 | 'gpt-5'", "gpt-4.1,gpt-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20250929"),
        ("auto", "inherit"),
    ],
)
def test_the_names_of_models_are_those_of_their_providers(
    tmp_path: Path, model: str, wanted: str
) -> None:
    assert load_one(tmp_path, f"model: {model}").model == wanted


@pytest.mark.parametrize(
    ("line", "field", "wanted"),
    [
        ("agents: [Explore Files, plan]", "children", ("explore-files", "plan")),
        ("agents: ['*']", "children", ("*",)),
        ("agents: []", "children", ()),
        ("effort: high", "effort", "high"),
        ("model_reasoning_effort: minimal", "effort", "low"),
    ],
)
def test_other_keys_keep_their_meaning(tmp_path: Path, line: str, field: str, wanted: Any) -> None:
    assert getattr(load_one(tmp_path, line), field) == wanted


@pytest.mark.parametrize("line", ["infer: false", "disable-model-invocation: true"])
def test_an_agent_that_is_no_child_is_only_for_the_user(tmp_path: Path, line: str) -> None:
    loaded = load(tmp_path, ".github/agents/x.agent.md", line)
    assert [agent.name for agent in loaded.main_agents] == ["x"]
    assert not loaded.agents


@pytest.mark.parametrize(
    ("model", "mode", "wanted"),
    [
        ("opusplan", "plan", "opus"),
        ("opusplan", "default", "sonnet"),
        ("sonnet[1m]", "default", "sonnet"),
        ("claude-opus-4-8[1m]", "default", "claude-opus-4-8"),
        ("opus[1M]", "default", "opus"),
        ("best", "default", "fable,opus"),
        ("fable", "default", "fable"),
        ("default", "default", "inherit"),
    ],
)
def test_the_words_for_models_of_claude_code_mean_the_same(
    tmp_path: Path, model: str, mode: str, wanted: str
) -> None:
    lines = ("name: x", f"model: {model}", f"permissionMode: {mode}")
    loaded = load(tmp_path, ".claude/agents/x.md", *lines)
    (agent,) = loaded.agents
    assert (agent.model, agent.mode) == (wanted, Mode(mode))
    warnings = [item.text for item in loaded.diagnostics if item.severity is Severity.WARNING]
    assert bool(warnings) is ("[1m]" in model.lower())
