"""Hooks port: the user's functions, called at fixed points of a run."""

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
"""The reason in `Report.unknown_changes` when hooks may have changed files."""

HookFunction = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""A function called like a hook program: takes its JSON input, returns its JSON output or None."""


class HookCallback(Struct, frozen=True):
    """A Python function in place of a hook program of a settings file.

    Input and output are the JSON objects a hook program reads and writes.

    Arguments:
        function: takes the input, returns the output or None. An exception counts as failure.
        matcher: selects by tool, agent, source or reason, depending on the event; "" for all.
        timeout: seconds, None for the event's default.
        blocks_on_failure: true if an exception or a timeout blocks the action.

    Example:
        async def refuse_push(hook_input):
            if "git push" not in hook_input["tool_input"]["command"]:
                return None
            return {"decision": "block", "reason": "Pushing is done by a human."}

        hooks = {"PreToolUse": [HookCallback(refuse_push, matcher="Bash")]}
        Session(integrations=Integrations(hooks=hooks))
    """

    function: HookFunction
    matcher: str = ""
    timeout: float | None = None
    blocks_on_failure: bool = False


class ToolHookDecision(Struct, frozen=True):
    """A hook's decision about a tool call that has not run yet.

    Arguments:
        denial: why the call is refused, for the model; "" does not refuse it.
        arguments: arguments that replace the model's; None keeps them.
        verdict: "allow" asks no one unless a rule asks or denies; "ask" requires confirmation;
            "" leaves it to the permission policy.
        why: reason for the verdict, for the user.
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
    """A hook's decision about a user's message to a running run.

    Arguments:
        denial: why the message is withheld from the model, for the user; "" lets it pass.
        context: text for the model, after the message.

    Example:
        class NoKeys(Hooks):
            async def on_message(self, brief, text):
                if "sk-" in text:
                    return MessageHookDecision(denial="Keys stay here.")

        Session(integrations=Integrations(hooks=NoKeys()))
    """

    denial: str = ""
    context: str = ""

    def __post_init__(self) -> None:
        for text in (self.denial, self.context):
            check_hook_result("on_message", text, str)


class Hooks:
    """Functions the engine awaits; a subclass overrides the ones it needs.

    A hook can narrow what a run may do, but the permission policy still judges every call. An
    exception in a hook ends the run with ERROR; raise StoppedByHook to do that on purpose.

    Example:
        class NoPush(Hooks):
            async def before_tool(self, brief, call):
                if "git push" in str(call.arguments):
                    return ToolHookDecision(denial="Pushing is done by a human.")

        Session(integrations=Integrations(hooks=NoPush()))
    """

    async def on_session_start(self, source: str) -> None:
        """Prepare for the session, before its first run.

        Arguments:
            source: "startup", "resume", "fork" or "clear"; see `Session.start_source`.
        """

    async def on_session_end(self, reason: str) -> None:
        """Clean up after the session's last run in this process.

        Arguments:
            reason: "clear", "resume", "prompt_input_exit" or "other"; see `Session.end_reason`.
        """

    async def on_prompt(self, brief: Brief) -> str:
        """Return text to add to the prompt of a root run, or ""."""
        return ""

    async def on_message(self, brief: Brief, text: str) -> MessageHookDecision | None:
        """Decide about a user's message right before the run reads it; None lets it pass."""
        return None

    async def on_run_start(self, brief: Brief) -> str:
        """Return text to add to the prompt of a child run, or ""."""
        return ""

    async def on_run_end(self, brief: Brief, report: Report) -> None:
        """Receive the report of a root or child run, right before it is recorded."""

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        """Decide about a call with valid arguments, before the policy; None has no opinion."""
        return None

    async def on_permission_request(
        self, brief: Brief, call: ToolCallBlock, why: str
    ) -> ToolHookDecision | None:
        """Decide in place of the approver about a call that needs confirmation; None asks it.

        Arguments:
            why: why the call needs confirmation.
        """
        return None

    async def on_permission_denied(self, brief: Brief, call: ToolCallBlock, why: str) -> None:
        """Learn of a call that a rule, the mode or the approver denied.

        Arguments:
            why: reason for the denial.
        """

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        """Return a result that replaces the tool's; None keeps it.

        Set `ToolResult.context` to add text for the model without changing the result.
        """
        return None

    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        """Return a reason to refuse the child, or "" to let it start."""
        return ""

    async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
        """Receive the report of a child."""

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Return a note that makes the run continue, or "" to let it end.

        Arguments:
            text: the final answer.
        """
        return ""

    async def explain_changes(self, brief: Brief) -> str:
        """Explain why hooks may have changed files since the last call, or return "".

        The engine compares files around tool calls, not around hooks. It asks here after each call
        and at the end of the run, and puts the answer into `Report.unknown_changes`. By default
        there is a reason if the class overrides a function called during runs. Return "" if your
        functions never change files.
        """
        return HOOKS_UNWATCHED if _acts_in_runs(type(self)) else ""

    async def before_compaction(self, brief: Brief) -> str:
        """Return text to add to the prompt of a summary run, or ""."""
        return ""

    async def after_compaction(self, brief: Brief) -> str:
        """Return text to add to a conversation the engine has just compacted, or "".

        The run's next request includes it. If the process ends or the user interrupts the run
        before the text is recorded, the engine calls this function again before that request. It
        is not called after a compaction by the user: the next `on_prompt` can return the text.
        """
        return ""


_NOT_IN_RUNS = {"on_session_start", "on_session_end", "on_run_end", "explain_changes"}


def _acts_in_runs(kind: type[Hooks]) -> bool:
    names = {name for name in vars(Hooks) if not name.startswith("_")} - _NOT_IN_RUNS
    return any(getattr(kind, name) is not getattr(Hooks, name) for name in names)


def check_hook_result(hook: str, value: T, expected: type) -> T:
    """Return a hook's value if it has the expected type or is None, else raise UsageError."""
    if value is None or isinstance(value, expected):
        return value
    raise UsageError(
        f"the hook {hook} gave a value of type {type(value).__name__}",
        remedy=f"Use {expected.__name__} or None.",
    )
