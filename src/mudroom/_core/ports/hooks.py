"""Hooks port: functions of the user that the engine calls at fixed points of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from msgspec import Struct

from ...errors import UsageError
from ..messages import ToolCallBlock
from ..runs import Brief, Report
from ..tools import ToolResult

T = TypeVar("T")

HOOKS_UNWATCHED = "hooks ran, and nothing compared the files before and after them"
"""Reason in `Report.unknown_changes` of a run whose hooks may have changed files."""

HookFunction = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Function that is called like a hook program: with its input, and returns its output."""


class HookCallback(Struct, frozen=True):
    """A function of the caller that is called where a program of a settings file would be.

    Input and output are the JSON objects that a hook program reads and writes.

    Arguments:
        function: takes the input, returns the output or None. An exception is a failed hook.
        matcher: selects by tool, agent, source or reason, as the event defines; "" for all.
        timeout: seconds, None for the limit of the event.
        blocks_on_failure: whether an exception or the time limit blocks.

    Example:
        async def refuse_push(hook_input):
            if "git push" not in hook_input["tool_input"]["command"]:
                return None
            return {"decision": "block", "reason": "Pushing is done by a human."}

        Session(hooks={"PreToolUse": [HookCallback(refuse_push, matcher="Bash")]})
    """

    function: HookFunction
    matcher: str = ""
    timeout: float | None = None
    blocks_on_failure: bool = False


class ToolHookDecision(Struct, frozen=True):
    """Decision of a hook about a tool call that has not run yet.

    Arguments:
        denial: reason for the model why the call is refused; "" does not refuse it.
        arguments: arguments to use instead of the model's; None keeps them.
        verdict: "allow": no one is asked, unless a rule asks or denies. "ask": someone must
            confirm the call. "": as the permission policy says.
        why: reason of the verdict for the user.
        context: text for the model, after the result of the call.
        rule: origin of the decision for the record.
    """

    denial: str = ""
    arguments: dict[str, Any] | None = None
    verdict: Literal["", "allow", "ask"] = ""
    why: str = ""
    context: str = ""
    rule: str = "hook"

    def __post_init__(self) -> None:
        for text in (self.denial, self.verdict, self.why, self.context, self.rule):
            check_hook_result("before_tool", text, str)
        check_hook_result("before_tool", self.arguments, dict)


class MessageHookDecision(Struct, frozen=True):
    """Decision of a hook about a message of the user to a run that works.

    Arguments:
        denial: reason for the user why the model does not get the message; "" lets it pass.
        context: text for the model, after the message.

    Example:
        class NoKeys(Hooks):
            async def on_message(self, brief, text):
                if "sk-" in text:
                    return MessageHookDecision(denial="Keys stay here.")

        Session(hooks=NoKeys())
    """

    denial: str = ""
    context: str = ""

    def __post_init__(self) -> None:
        for text in (self.denial, self.context):
            check_hook_result("on_message", text, str)


class Hooks:
    """Functions that the engine awaits. A subclass overrides those that it needs.

    A hook can narrow what a run may do; the permission policy judges a call in any case. An
    exception of a hook ends the run with ERROR; StoppedByHook does so as a decision of the hook.

    Example:
        class NoPush(Hooks):
            async def before_tool(self, brief, call):
                if "git push" in str(call.arguments):
                    return ToolHookDecision(denial="Pushing is done by a human.")

        Session(hooks=NoPush())
    """

    async def on_session_start(self, source: str) -> None:
        """Prepare for the session before its first run.

        Arguments:
            source: "startup", "resume", "fork" or "clear"; see `Session.start_source`.
        """

    async def on_session_end(self, reason: str) -> None:
        """Finish, after the last run of the session in this process.

        Arguments:
            reason: "clear", "resume", "prompt_input_exit" or "other"; see `Session.end_reason`.
        """

    async def on_prompt(self, brief: Brief) -> str:
        """Return text to add to the prompt of a run without a parent, or ""."""
        return ""

    async def on_message(self, brief: Brief, text: str) -> MessageHookDecision | None:
        """Decide on a message of the user, right before the run reads it; None lets it pass."""
        return None

    async def on_run_start(self, brief: Brief) -> str:
        """Return text to add to the prompt of a child run, or ""."""
        return ""

    async def on_run_end(self, brief: Brief, report: Report) -> None:
        """Receive the report of a run of any kind, right before the record has it."""

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        """Decide on a call with valid arguments, before the policy; None leaves it as it is."""
        return None

    async def on_permission_request(
        self, brief: Brief, call: ToolCallBlock, why: str
    ) -> ToolHookDecision | None:
        """Decide in place of the approver on a call that someone must confirm; None asks it.

        Arguments:
            why: reason why the call must be confirmed.
        """
        return None

    async def on_permission_denied(self, brief: Brief, call: ToolCallBlock, why: str) -> None:
        """Receive a call that a rule, the mode or the approver has denied.

        Arguments:
            why: reason of the denial.
        """

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        """Return a result to use instead of the tool's; None keeps it.

        `ToolResult.context` adds text for the model without a change of the result.
        """
        return None

    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        """Return a reason to refuse the child, or "" to let it start."""
        return ""

    async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
        """Receive the report of a child."""

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Return a note to continue the run with, or "" to let it end. `text`: the final answer."""
        return ""

    async def explain_changes(self, brief: Brief) -> str:
        """Return why hooks of a run may have changed files since the last call, or "".

        The engine compares files around tool calls, not around hooks. It asks after each call and
        at the end of the run, and puts the answer into `Report.unknown_changes`. By default this is
        a reason if the class overrides a function that is called during runs. Return "" if your
        functions change no file.
        """
        return HOOKS_UNWATCHED if _acts_in_runs(type(self)) else ""

    async def before_compaction(self, brief: Brief) -> str:
        """Return text to add to the prompt of a run that summarises the conversation, or ""."""
        return ""

    async def after_compaction(self, brief: Brief) -> str:
        """Return text to add to a conversation that the engine has just compacted, or "".

        The next request of the same run has it. If the text is not recorded because the process
        ends or the user interrupts the run, the engine calls this function again before that
        request. After a compaction by the user this function is not called. `on_prompt` of the
        next prompt returns the text.
        """
        return ""


_NOT_IN_RUNS = {"on_session_start", "on_session_end", "on_run_end", "explain_changes"}


def _acts_in_runs(kind: type[Hooks]) -> bool:
    names = {name for name in vars(Hooks) if not name.startswith("_")} - _NOT_IN_RUNS
    return any(getattr(kind, name) is not getattr(Hooks, name) for name in names)


def check_hook_result(hook: str, value: T, expected: type) -> T:
    """Return a value that a hook gave. Raise UsageError if it has another type and is not None."""
    if value is None or isinstance(value, expected):
        return value
    raise UsageError(
        f"the hook {hook} gave a value of type {type(value).__name__}",
        remedy=f"Use {expected.__name__} or None.",
    )
