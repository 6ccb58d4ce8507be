"""Hooks port: functions of the user that the engine calls at fixed points of a run."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from ...errors import UsageError
from ..messages import ToolCallBlock
from ..runs import Brief, Report
from ..tools import ToolResult

T = TypeVar("T")


class ToolHookDecision(Struct, frozen=True):
    """Decision of a hook about a tool call that has not run yet.

    Arguments:
        denial: reason for the model why the call is refused; "" allows it.
        arguments: arguments to use instead of the model's; None keeps them.
    """

    denial: str = ""
    arguments: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_hook_result("before_tool", self.denial, str)
        check_hook_result("before_tool", self.arguments, dict)


class Hooks:
    """Functions that the engine awaits. A subclass overrides those that it needs.

    A hook can narrow what a run may do; the permission policy judges a call in any case. An
    exception of a hook ends the run with ERROR.

    Example:
        class NoPush(Hooks):
            async def before_tool(self, brief, call):
                if "git push" in str(call.arguments):
                    return ToolHookDecision(denial="Pushing is done by a human.")

        Session(hooks=NoPush())
    """

    async def on_prompt(self, brief: Brief) -> str:
        """Return text to add to the prompt of a run without a parent, or ""."""
        return ""

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        """Decide on a call with valid arguments, before the policy; None leaves it as it is."""
        return None

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        """Return a result to use instead of the tool's; None keeps it."""
        return None

    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        """Return a reason to refuse the child, or "" to let it start."""
        return ""

    async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
        """Receive the report of a child."""

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Return a note to continue the run with, or "" to let it end. `text`: the final answer."""
        return ""

    async def before_compaction(self, brief: Brief) -> str:
        """Return text to add to the prompt of a run that summarises the conversation, or ""."""
        return ""


def check_hook_result(hook: str, value: T, expected: type) -> T:
    """Return a value that a hook gave. Raise UsageError if it has another type and is not None."""
    if value is None or isinstance(value, expected):
        return value
    raise UsageError(
        f"the hook {hook} gave a value of type {type(value).__name__}",
        remedy=f"Use {expected.__name__} or None.",
    )
