"""Tool ports: the context of a tool call, and sources of tools."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from ..tools import Tool, ToolResult
from .approval import ApprovalDecision
from .input_forms import InputForm
from .sandbox import Sandbox
from .workspace import Workspace


class ToolContext(Protocol):
    """The parts of a run that a tool may use.

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
        """Id of the run."""
        ...

    @property
    def workspace(self) -> Workspace:
        """The files that the run sees, filtered by the permission rules."""
        ...

    @property
    def sandbox(self) -> Sandbox:
        """The place where commands of the run are executed."""
        ...

    @property
    def memo(self) -> dict[str, Any]:
        """State that the tools of this run keep between calls, by tool name."""
        ...

    @property
    def turn(self) -> int:
        """Number of the current turn, from 1."""
        ...

    @property
    def run_name(self) -> str:
        """Name of the run if it is a named child, else ""."""
        ...

    @property
    def agent_name(self) -> str:
        """Name of the agent of the run."""
        ...

    @property
    def call_key(self) -> str:
        """Id of the call, unlike that of any other call in any session.

        A call that runs again after a crash has the same. With it a keyed tool acts exactly once.
        """
        ...

    @property
    def traceparent(self) -> str:
        """Header `traceparent` for requests of the call, "" without traces."""
        ...

    @property
    def redact(self) -> Callable[[str], str]:
        """Function that removes secrets from a text.

        The engine redacts results; tools redact spill files.
        """
        ...

    def spill_path(self, name: str) -> str:
        """Return the path of a new file for output that is too long for the model.

        The file is outside the workspace; the `read` tool can read it.
        """
        ...

    def show_progress(self, line: str) -> None:
        """Show the progress of the call on the screens. No model reads it.

        Arguments:
            line: what the call does now, in a few words.

        Example:
            @tool
            def sort(ctx: ToolContext, paths: list[str]) -> str:
                for number, path in enumerate(paths, 1):
                    ctx.show_progress(f"{number} of {len(paths)}: {path}")
                return "sorted"
        """
        ...

    async def ask_user(self, form: InputForm) -> ApprovalDecision:
        """Ask the user a question for the call; the record has the answer when this returns.

        Without a user it is declined at once. The clocks of the run do not count the time.

        Arguments:
            form: the question. `arguments` of the decision are the values of its fields.

        Example:
            @tool
            async def deploy(ctx: ToolContext, version: str) -> str:
                place = {"type": "object", "properties": {"place": {"enum": ["test", "live"]}}}
                answer = await ctx.ask_user(InputForm("deploy", f"Where to? {version}", place))
                return str(answer.arguments) if answer.allowed else "The user declined."
        """
        ...

    def run_in_background(self, title: str, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        """Run work after the call has returned, and return the result of the call.

        The model reads the result of the work in a notification. The end of the run cancels work
        that goes on.
        """
        ...

    async def run_detachable(
        self,
        title: str,
        work: Coroutine[Any, Any, ToolResult],
        on_detach: Callable[[], object],
    ) -> ToolResult:
        """Run work that may go on in the background, and return the result of the call.

        It is the result of the work, or that of `run_in_background` if the user sends the work to
        the background before its end.

        Arguments:
            on_detach: called when the work goes on in the background.
        """
        ...


class ToolSource(Protocol):
    """A source of tools that can change, such as a server in another process."""

    @property
    def name(self) -> str:
        """Name of the source, for notices."""
        ...

    async def open(self) -> None:
        """Connect to the source. Raises an exception if that is not possible."""
        ...

    async def list(self) -> Sequence[Tool]:
        """Return the tools that the source has now."""
        ...

    async def wait_for_change(self) -> None:
        """Wait until the tools have changed since the last `list`, or `open`."""
        ...

    async def close(self) -> None:
        """Disconnect from the source."""
        ...


class ToolServers(Protocol):
    """Servers whose tools a session learns when a run needs them.

    Unlike a source of tools, a server starts only when a run needs a tool of it.
    """

    @property
    def patterns(self) -> tuple[str, ...]:
        """Tool pattern of each server, such as `mcp__git__*`."""
        ...

    @property
    def full_patterns(self) -> tuple[str, ...]:
        """Patterns of the servers whose tools models always get in full."""
        ...

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Patterns of the servers whose tools are not known yet."""
        ...

    @property
    def instructions(self) -> Mapping[str, str]:
        """Instructions of the servers, by pattern."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that are known now, by name."""
        ...

    async def load(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Learn the tools that patterns name; return why some are missing, a line for each."""
        ...

    def open_own(self, agent: str, *, is_root: bool) -> ToolServers | None:
        """Return the servers that only runs of this agent have, for one run; None without any.

        The run closes them at its end. Those of root runs stay open until the session ends.
        """
        ...

    async def close(self) -> None:
        """End all servers."""
        ...


Toolbox = Mapping[str, Tool]
"""Tools by name."""
