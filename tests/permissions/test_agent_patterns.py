"""Call patterns of agents, such as `bash(git:*)`: they limit the agent's runs and those below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.long_form import count_examples

from mudroom import Agent, Integrations, Session
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.tools import make_builtin_tools
from mudroom._core.agents import Mode
from mudroom._core.budgets import Budget
from mudroom._core.messages import ToolCallBlock
from mudroom._core.ports import PermissionVerdict
from mudroom._core.runs import Brief
from mudroom._core.tool_names import list_call_patterns, select_tools
from mudroom._core.tools import Tool
from mudroom._engine.children.task_tool import make_task_tool
from mudroom.permissions.policy import RulePolicy
from mudroom.permissions.rules import Permissions

from .conftest import Play

TOOLS: dict[str, Tool] = {
    **make_builtin_tools(),
    "task": make_task_tool({}),
    "own_shell": replace(make_builtin_tools()["bash"], name="own_shell"),
}
ORDER = ["deny", "ask", "allow"]


def judge(
    root: Path,
    tool: str,
    tools: tuple[str, ...],
    *above: tuple[str, ...],
    base_rules: Permissions | None = None,
    mode: Mode = Mode.BYPASS,
    **arguments: Any,
) -> PermissionVerdict:
    policy = RulePolicy(
        base_rules or Permissions(),
        workspace=str(root),
        user_home="/nowhere",
        tools=make_builtin_tools(),
        tier=lambda: "full",
    )
    brief = Brief(
        run_id="1",
        agent=Agent(name="a", tools=tools),
        prompt="p",
        tools=(),
        model="m",
        budget=Budget(),
        inherited_patterns=above,
        mode=mode,
    )
    return policy.judge(ToolCallBlock("c", tool, arguments), TOOLS[tool], arguments, brief)


def get_verdict(*arguments: Any, **more: Any) -> str:
    return judge(*arguments, **more).verdict


def judge_command(root: Path, command: str, *patterns: tuple[str, ...], **more: Any) -> str:
    """Return the verdict on a command of an agent with these tools, below others."""
    return get_verdict(root, "bash", *patterns, command=command, **more)


@pytest.mark.parametrize(
    ("tools", "wanted", "patterns"),
    [
        (("read", "bash(git:*)"), "bash read", "bash(git:*)"),
        (("*", "!bash(rm:*)"), "bash read task", "!bash(rm:*)"),
        (("bash", "Bash(git:*)"), "bash", ""),
        (("*", "bash(git:*)"), "bash read task", ""),
        (("bash(git:*)", "!bash"), "", "bash(git:*)"),
        (("Shell(git:*)",), "bash", "Shell(git:*)"),
    ],
)
def test_a_pattern_with_brackets_includes_the_tool(
    tools: tuple[str, ...], wanted: str, patterns: str
) -> None:
    assert select_tools(["bash", "read", "task"], tools) == tuple(wanted.split())
    assert list_call_patterns(tools) == tuple(patterns.split())


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git log -3", "allow"),
        ("cd src && git log | git shortlog", "allow"),
        ("echo done; git status", "allow"),
        ("timeout 5 git log", "allow"),
        ("ls", "deny"),
        ("cat src/a.py", "deny"),
        ("git log; rm x", "deny"),
        ("git log > out", "deny"),
        ("git $(rm x)", "deny"),
        ("git -c core.pager=evil log", "deny"),
        ("sh -c 'rm x'", "deny"),
        ("git 'unclosed", "deny"),
        ("git push", "deny"),
    ],
)
def test_only_commands_that_match_the_pattern_are_allowed(
    tmp_path: Path, command: str, verdict: str
) -> None:
    decision = judge(tmp_path, "bash", ("bash(git:*)", "!bash(git push:*)"), command=command)
    assert decision.verdict == verdict
    assert verdict == "allow" or "its agent" in decision.why + decision.rule


def test_a_call_pattern_never_widens_the_rules_of_the_session(tmp_path: Path) -> None:
    asking = Permissions.of(ask=["Bash(git:*)"], deny=["Bash(git fetch:*)"])
    for command, verdict in (("git log", "ask"), ("git fetch", "deny")):
        assert judge_command(tmp_path, command, ("bash(git:*)",), base_rules=asking) == verdict


@pytest.mark.parametrize("tools", [("write",), ("write(src/**)",)])
@pytest.mark.parametrize(("mode", "of_session"), [("plan", "default"), ("default", "plan")])
def test_the_stricter_mode_of_agent_and_session_decides(
    tmp_path: Path, tools: tuple[str, ...], mode: str, of_session: str
) -> None:
    base_rules = Permissions.of(mode=of_session)
    decision = judge(
        tmp_path, "write", tools, base_rules=base_rules, mode=Mode(mode), file_path="src/a"
    )
    assert (decision.verdict, decision.why) == ("deny", "only reading is allowed in plan mode")
    decision = judge(tmp_path, "write", tools, mode=Mode.DEFAULT, file_path="src/a")
    assert decision.verdict == "allow"


def test_every_agent_above_must_allow_a_call(tmp_path: Path) -> None:
    for command, verdict in (("git log", "allow"), ("git push", "deny"), ("make", "deny")):
        above = (("bash(git:*)",), ("!bash(git push:*)",))
        assert judge_command(tmp_path, command, ("bash",), *above) == verdict
    assert judge_command(tmp_path, "make", ("bash(make:*)",), ("bash(git:*)",)) == "deny"


FILES = ["read(src/**)", "edit(src/**)", "!read(.env)", "!write(src/x)"]


@pytest.mark.parametrize(
    ("tool", "path", "verdict"),
    [
        ("read", "src/a.py", "allow"),
        ("read", "other", "deny"),
        ("read", ".env", "deny"),
        ("read", "link", "deny"),
        ("read", "/long/output.txt", "allow"),
        ("edit", "src/a.py", "allow"),
        ("edit", "other", "deny"),
        ("edit", "src/x", "deny"),
    ],
)
def test_call_patterns_with_paths(tmp_path: Path, tool: str, path: str, verdict: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "link").symlink_to("../other")
    path = path.replace("link", "src/link")
    assert get_verdict(tmp_path, tool, tuple(FILES), file_path=path) == verdict


@pytest.mark.parametrize("name", ["bash", "own_shell"])
def test_a_pattern_applies_to_a_command_tool_of_any_name(tmp_path: Path, name: str) -> None:
    pattern = f"{name}(git:* push)"
    for command, verdict in (("git stash push", "allow"), ("git log", "deny")):
        assert get_verdict(tmp_path, name, (pattern,), command=command) == verdict


def test_an_invalid_pattern_allows_no_call(tmp_path: Path) -> None:
    assert judge_command(tmp_path, "git push", ("bash(git push",)) == "deny"
    assert judge_command(tmp_path, "ls", ("bash", "!bash(git push")) == "deny"
    assert judge_command(tmp_path, "make", ("bash(*)",)) == "allow"


def test_the_task_tool_can_be_limited_to_agents(tmp_path: Path) -> None:
    for tools, agent, verdict in (
        (("task(explore)",), "Explore", "allow"),
        (("task(explore)",), "general", "deny"),
        (("task", "!task(general)"), "general", "deny"),
    ):
        assert get_verdict(tmp_path, "task", tools, agent=agent, prompt="x") == verdict


SPECS = st.sampled_from(
    [
        "bash(git:*)",
        "bash(git log:*)",
        "bash(make)",
        "!bash(git push:*)",
        "!bash(make:*)",
        "bash",
        "!read(.env)",
    ]
)
COMMANDS = st.sampled_from(
    [
        "git log",
        "git push",
        "make",
        "make x",
        "ls",
        "git log; make",
        "cat .env",
        "$x",
        "git log > a",
        "sh -c make",
    ]
)


@settings(max_examples=count_examples(100, 300), deadline=None)
@given(
    st.lists(st.lists(SPECS, min_size=1, max_size=3).map(tuple), max_size=3),
    COMMANDS,
    st.booleans(),
)
def test_each_limit_only_narrows(above: list[tuple[str, ...]], command: str, can_ask: bool) -> None:
    base_rules = replace(
        Permissions.of(deny=["Bash(curl:*)"]), can_ask=can_ask, mode=Mode.ACCEPT_EDITS
    )
    verdicts = [
        ORDER.index(
            judge_command(
                Path("/nowhere/x"),
                command,
                ("bash",),
                *map(list_call_patterns, above[:n]),
                base_rules=base_rules,
            )
        )
        for n in range(len(above) + 1)
    ]
    assert verdicts == sorted(verdicts, reverse=True)


GIT = Agent(
    name="git",
    description="d",
    instructions="CHILD i",
    tools=("bash(git:*)", "task", "read(src/**)", "glob"),
)
FREE = Agent(name="free", description="d", instructions="GRAND i", tools=("bash", "read"))


async def test_a_call_pattern_applies_to_the_agents_runs_and_all_below(play: Play) -> None:
    def script(request: Request) -> Answer:
        step = request.results
        if "GRAND" in request.system:
            return (
                [call("bash", command="touch made"), call("bash", command="git --version")]
                if not step
                else "Grandchild done."
            )
        if "CHILD" in request.system:
            first = [
                call("bash", command="touch made"),
                call("task", agent="free", prompt="go", description="d"),
            ]
            return first if not step else "Child done."
        return [call("task", agent="git", prompt="go", description="d")] if not step else "Done."

    report = await play(script, agents=[GIT, FREE], budget=Budget(depth=2))
    assert report.ok and not (play.folder / "made").exists()
    assert [(judged.run, judged.verdict, judged.allowed) for judged in play.judged] == [
        ("1.1.1", "deny", False),
        ("1.1.1.1.2", "deny", False),
    ]
    assert all("its agent has only bash(git:*)" in judged.policy_reason for judged in play.judged)


async def test_glob_sees_only_what_the_agent_may_read(play: Play) -> None:
    (play.folder / "src").mkdir()
    (play.folder / "src" / "a.py").write_text("x")
    (play.folder / "other.py").write_text("x")
    agent = replace(GIT, tools=("glob(src/**)", "grep(src/**)"))
    await play([[call("glob", pattern="**/*.py"), call("grep", pattern="x")], "Done."], agent=agent)
    expected = "src/a.py\n(not searched: 1 file that may not be read)"
    assert [finished.result.text for finished in play.results] == [expected] * 2


async def test_the_tools_of_children_may_be_limited(play: Play) -> None:
    parent = Agent(name="main", instructions="PARENT i", child_tools=("bash(git:*)",))

    def script(request: Request) -> Answer:
        if "PARENT i" in request.system:
            return (
                [call("task", agent="free", prompt="go", description="d")]
                if not request.results
                else "Done."
            )
        return (
            [call("bash", command="touch made"), call("bash", command="git --version")]
            if not request.results
            else "Child done."
        )

    await play(script, agents=[FREE], agent=parent)
    assert not (play.folder / "made").exists() and len(play.judged) == 1


async def test_call_patterns_of_an_agent_file_apply(tmp_path: Path) -> None:
    (tmp_path / ".claude" / "agents").mkdir(parents=True)
    head = (
        "---\nname: committer\ndescription: d\ntools: Bash(git:*), Read\n"
        "disallowedTools: Bash(git push:*)\n---\nYou commit.\n"
    )
    (tmp_path / ".claude" / "agents" / "c.md").write_text(head)
    environ = {"HOME": str(tmp_path / "user")}
    async with Session(
        model="offline",
        cwd=str(tmp_path),
        home=str(tmp_path / "h"),
        environ=environ,
        integrations=Integrations(agent_files=True),
        journal="memory",
        sandbox="off",
    ) as session:
        agent = next(agent for agent in session.agents if agent.name == "committer")
    assert (
        agent.call_patterns == ("bash(git:*)", "!bash(git push:*)")
        and agent.tools is not None
        and "read" in agent.tools
    )
