"""Approval ports: the policy that judges tool calls, and the approver who confirms some."""

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
    """A tool call waiting for confirmation.

    Arguments:
        why: why it needs confirmation.
        command_part: the part of the command the request is about, or "".
        category: category of the tool, see Tool.category.
        change: lines of the file change the call would make, see PreviewLine; empty if the tool
            cannot tell.
        name: name of the child that asks, if it has one, else "".
        form: a question asked by an MCP server or tool during the call; the decision then carries
            the answer. None for a request about the call itself.

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
    """The answer to an approval request.

    Arguments:
        allowed: true if the call may run.
        why: text for the model if the call is denied.
        arguments: arguments that replace the model's, judged by the policy again; None keeps
            them. For a request with a form, the values of its fields by name.

    Example:
        ApprovalDecision(False, "Use the tests instead.")
    """

    allowed: bool
    why: str = ""
    arguments: dict[str, Any] | None = None


class Approver(Protocol):
    """Decides about tool calls. An approver that cannot reach a user denies at once.

    Example:
        class Careful:
            async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
                return ApprovalDecision(request.tool != "bash", "No commands here.")

        approver: Approver = Careful()
        Session(approver=approver)
    """

    async def decide(self, request: ApprovalRequest, /) -> ApprovalDecision:
        """Decide about a request. May wait for a user."""
        ...


class PermissionVerdict(Struct, frozen=True):
    """The policy's judgement of a tool call.

    Arguments:
        verdict: "allow", "ask" or "deny".
        why: one sentence for the model, the user and the journal.
        rule: the rule that decided, with its origin, or "".
        command_part: the part of the command the verdict is about, or "".
    """

    verdict: str
    why: str = ""
    rule: str = ""
    command_part: str = ""


class Policy(Protocol):
    """Judges tool calls by rules and mode, without asking anyone and without side effects."""

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """Judge a tool call.

        Arguments:
            arguments: validated, under the tool's own argument names.
        """
        ...

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """Wrap a workspace so that a tool cannot see the files it may not read."""
        ...
