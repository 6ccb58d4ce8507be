"""Approval ports: the policy that judges tool calls, and the approver who confirms some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from ..messages import ToolCallBlock
from ..runs import Brief
from ..tools import PreviewLine, Tool, ToolCategory
from ..type_checks import NamedFields
from .input_forms import InputForm
from .workspace import Workspace


class ApprovalRequest(Struct, frozen=True):
    """A tool call that someone must confirm.

    Arguments:
        why: reason why it must be confirmed.
        command_part: the part of a command that the request is about, or "".
        category: kind of the tool, see Tool.category.
        change: lines of the change to a file that the call would make, see PreviewLine; empty if
            the tool cannot tell.
        name: of the named child that asks, else "".
        form: question of an MCP server during the call; the decision is about the answer to it,
            not about the call. None for a request about the call itself.

    Example:
        request = ApprovalRequest("1", "main", "bash", {"command": "make"}, why="no rule allows it")
    """

    run_id: str
    agent: str
    tool: str
    arguments: dict[str, Any]
    why: str
    call_id: str = ""
    command_part: str = ""
    category: ToolCategory | None = None
    change: tuple[PreviewLine, ...] = ()
    name: str = ""
    form: InputForm | None = None


class ApprovalDecision(Struct, metaclass=NamedFields, frozen=True):
    """Answer to an approval request.

    Arguments:
        allowed: true if the call may run.
        why: text for the model if the call is denied.
        arguments: arguments to use instead of the model's, which the policy judges again; None
            keeps them. For a request with a form: the values of its fields by name.

    Example:
        ApprovalDecision(False, "Use the tests instead.")
    """

    allowed: bool
    why: str = ""
    arguments: dict[str, Any] | None = None


class Approver(Protocol):
    """Approver of tool calls. An approver that cannot ask a user denies at once.

    Example:
        class Careful:
            async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
                return ApprovalDecision(request.tool != "bash", "No commands here.")

        approver: Approver = Careful()
        Session(approver=approver)
    """

    async def decide(self, request: ApprovalRequest, /) -> ApprovalDecision:
        """Decide a request."""
        ...


class PermissionVerdict(Struct, frozen=True):
    """Judgement of the policy about a tool call.

    Arguments:
        verdict: "allow", "ask" or "deny".
        why: one sentence for the model, the user and the journal.
        rule: the rule that decided, with its origin, or "".
        command_part: the part of a command that the verdict is about, or "".
    """

    verdict: str
    why: str = ""
    rule: str = ""
    command_part: str = ""


class Policy(Protocol):
    """Judge of tool calls. It asks no one and has no effect."""

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """Judge a tool call of a run. `arguments`: checked, by the tool's own names."""
        ...

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """Return the workspace as a tool of a run may see it, without the files it may not read."""
        ...
