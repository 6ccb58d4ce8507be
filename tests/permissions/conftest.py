"""Fixtures: a policy for a small project, and sessions whose model follows a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import AnyEvent, Report, Session
from mudroom._adapters.models.scripted import Script, ScriptedModel
from mudroom._adapters.tools import make_builtin_tools
from mudroom._core.agents import Mode
from mudroom._core.events import PermissionDecided, ToolCallFinished
from mudroom._core.ports import ApprovalDecision, ApprovalRequest, PermissionVerdict
from mudroom._core.tools import Tool
from mudroom._engine.children.task_tool import make_task_tool
from mudroom.permissions.policy import RulePolicy
from mudroom.permissions.rules import Permissions

TOOLS: dict[str, Tool] = {**make_builtin_tools(), "task": make_task_tool({})}


class RuleJudge:
    """Policy of one project; each call may set its own rules."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home

    def __call__(
        self,
        tool: str,
        /,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        *,
        mode: str = "default",
        can_ask: bool = True,
        tier: str = "off",
        **arguments: Any,
    ) -> PermissionVerdict:
        permissions = replace(
            Permissions.of(allow=allow, ask=ask, deny=deny, mode=mode), can_ask=can_ask
        )
        policy = self.make_policy(permissions, tier)
        return policy.decide(TOOLS[tool], arguments, Mode(mode))

    def make_policy(self, permissions: Permissions, tier: str = "off") -> RulePolicy:
        """Return the policy of the project with these rules."""
        return RulePolicy(
            permissions,
            workspace=str(self.root),
            user_home=str(self.home),
            tools=make_builtin_tools(),
            tier=lambda: tier,
        )

    def bash(self, command: str, /, **more: Any) -> str:
        """Return the verdict on a command."""
        return self("bash", command=command, **more).verdict


@pytest.fixture
def judge_call(tmp_path: Path) -> RuleJudge:
    root = tmp_path / "project"
    home = tmp_path / "home"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("print(1)\n")
    (root / ".env").write_text("KEY=1\n")
    home.mkdir()
    return RuleJudge(root, home)


class ScriptedApprover:
    """Approver with fixed decisions, "no" after the last one; it records the requests."""

    def __init__(self, *answers: bool) -> None:
        self.questions: list[ApprovalRequest] = []
        self._answers = list(answers)

    async def decide(self, question: ApprovalRequest) -> ApprovalDecision:
        self.questions.append(question)
        return ApprovalDecision(self._answers.pop(0) if self._answers else False, "said the user")


class Play:
    """Runs scripted sessions in one folder and records their events."""

    def __init__(self, base: Path) -> None:
        self.folder = base / "work"
        self.home = base / "records"
        self.events: list[AnyEvent] = []
        self.folder.mkdir()
        self.model = ScriptedModel([])

    async def __call__(self, script: Script, **settings: Any) -> Report:
        self.model = ScriptedModel(script)
        options = dict[str, Any](journal="memory", environ={}, sandbox="off") | settings
        async with Session(
            model=self.model, cwd=str(self.folder), home=str(self.home), **options
        ) as session:
            session.watch(self.events.append)
            return await session.run("PARENT do it")

    @property
    def judged(self) -> list[PermissionDecided]:
        return [event for event in self.events if isinstance(event, PermissionDecided)]

    @property
    def results(self) -> list[ToolCallFinished]:
        return [event for event in self.events if isinstance(event, ToolCallFinished)]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


@pytest.fixture
def make_approver() -> Callable[..., ScriptedApprover]:
    return ScriptedApprover
