"""Tool ports: what a tool call may use, and where tools come from."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from ..tools import Tool, ToolResult
from .approval import ApprovalDecision, InputForm
from .environment import Sandbox
from .workspace import Workspace


class ToolContext(Protocol):
    """What a tool may use of the run that calls it.

    Example:
        @tool
        def note(ctx: ToolContext, line: str) -> str:
            "Keep a line for later."
            lines = ctx.memo.setdefault("note", [])
            lines.append(line)
            return f"{len(lines)} lines in run {ctx.run_id}"
    """

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    @property
    def workspace(self) -> Workspace:
        """The files that the run sees, filtered by the permission rules."""
        ...

    @property
    def sandbox(self) -> Sandbox:
        """The place where the run's commands are executed."""
        ...

    @property
    def memo(self) -> dict[str, Any]:
        """State that tools keep between the calls of a run, by tool name."""
        ...

    @property
    def turn(self) -> int:
        """Number of the current turn, from 1."""
        ...

    @property
    def run_name(self) -> str:
        """The run's name if it is a named child, else ""."""
        ...

    @property
    def agent_name(self) -> str:
        """The name of the run's agent."""
        ...

    @property
    def call_key(self) -> str:
        """An id of the call, unique among all sessions.

        A call that runs again after a crash has the same key, which lets a keyed tool act exactly
        once.
        """
        ...

    @property
    def traceparent(self) -> str:
        """The `traceparent` header for the call's own requests, "" without tracing."""
        ...

    @property
    def redact(self) -> Callable[[str], str]:
        """The function that removes secrets from a text.

        The engine applies it to results; a tool must apply it to its spill files.
        """
        ...

    def spill_path(self, name: str) -> str:
        """Return the path of a new file for output too long for the model.

        The file is outside the workspace, but the `read` tool can read it.
        """
        ...

    def show_progress(self, line: str) -> None:
        """Show the progress of the call to the user. The model does not see it.

        Arguments:
            line: what the call is doing, in a few words.

        Example:
            @tool
            def sort(ctx: ToolContext, paths: list[str]) -> str:
                for number, path in enumerate(paths, 1):
                    ctx.show_progress(f"{number} of {len(paths)}: {path}")
                return "sorted"
        """
        ...

    def show_output(self, text: str) -> None:
        """Show the output of the call so far to the user, whose screen has its last lines.

        A call that is cut off has no result. The model then reads the last text given here, marked
        as partial.

        Arguments:
            text: all output so far, or its end.

        Example:
            @tool
            def convert(ctx: ToolContext, paths: list[str]) -> str:
                lines: list[str] = []
                for path in paths:
                    lines.append(f"converted {path}")
                    ctx.show_output("\\n".join(lines))
                return "\\n".join(lines)
        """
        ...

    async def ask_user(self, form: InputForm) -> ApprovalDecision:
        """Ask the user a question and wait; the answer is recorded when this returns.

        Without a user it is declined at once. The run's time limits do not count the wait.

        Arguments:
            form: the question. The decision's `arguments` hold the values of its fields.

        Example:
            @tool
            async def deploy(ctx: ToolContext, version: str) -> str:
                place = {"type": "object", "properties": {"place": {"enum": ["test", "live"]}}}
                answer = await ctx.ask_user(InputForm("deploy", f"Where to? {version}", place))
                return str(answer.arguments) if answer.allowed else "The user declined."
        """
        ...

    def run_in_background(self, title: str, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        """Start work that continues after the call, and return the call's result.

        The model reads the work's result in a notification. The end of the run cancels work still
        in progress.
        """
        ...

    async def run_detachable(
        self, title: str, work: Coroutine[Any, Any, ToolResult], on_detach: Callable[[], object]
    ) -> ToolResult:
        """Run work that the user may send to the background, and return the call's result.

        That is the work's own result, or the result of `run_in_background` if the user detached
        it.

        Arguments:
            on_detach: called when the user detaches the work.
        """
        ...


class ToolSource(Protocol):
    """A source of tools that may change, such as a server in another process."""

    @property
    def name(self) -> str:
        """The source's name in notices."""
        ...

    async def open(self) -> None:
        """Connect to the source. Raises if that fails."""
        ...

    async def list(self) -> Sequence[Tool]:
        """Return the source's current tools."""
        ...

    async def wait_for_change(self) -> None:
        """Wait until the tools have changed since the last `list` or `open`."""
        ...

    async def close(self) -> None:
        """Disconnect from the source."""
        ...


class ToolServers(Protocol):
    """Servers that start when a run first needs one of their tools, unlike a ToolSource."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The tool pattern of each server, such as `mcp__git__*`."""
        ...

    @property
    def full_patterns(self) -> tuple[str, ...]:
        """Patterns of the servers whose tools are always given to models in full."""
        ...

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Patterns of the servers whose tools are not known yet."""
        ...

    @property
    def instructions(self) -> Mapping[str, str]:
        """Each server's instructions for models, by its pattern."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]: ...

    async def load(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Load the tools the patterns match; return a line for each failure."""
        ...

    def open_own(self, agent: str, *, is_root: bool) -> ToolServers | None:
        """Open the servers an agent declares for its own runs; None if it declares none.

        The run closes them at its end. A root run's stay open until the session ends.
        """
        ...

    async def close(self) -> None: ...


Toolbox = Mapping[str, Tool]
"""Tools by name."""
