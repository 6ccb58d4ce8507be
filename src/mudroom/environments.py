"""Environments of runs: their files, their sandbox and their permission policy."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ._core.agents import WorkspaceKind, WorkspaceSpec
from ._core.ports import Environment, Sandbox, Workspace
from .errors import UsageError
from .permissions.policy import RulePolicy
from .permissions.rules import Permissions
from .tools import make_builtin_tools


def open_workspace(folder: str, *readable: str, copied_from: str = "") -> Workspace:
    """Open a folder as a workspace.

    Arguments:
        readable: folders outside it. copied_from: see SharedWorkspace.
    """
    from .workspaces.shared import SharedWorkspace

    return SharedWorkspace(folder, readable=readable, copied_from=copied_from)


class EnvironmentFactory(Struct, frozen=True, kw_only=True):
    """Factory of environments: opens folders with the options of a session.

    Arguments:
        home: mudroom's state folder. user_home: the user's home.
        sandbox: see `SessionOptions.sandbox`. can_ask: true if a user can approve commands.
        readable: folders outside the workspace that may be read.
    """

    permissions: Permissions
    home: str
    user_home: str
    sandbox: str | Sandbox
    allow_net: bool
    can_ask: bool
    readable: tuple[str, ...]

    def open(
        self,
        folder: str,
        notices: list[str],
        *,
        spec: WorkspaceSpec = WorkspaceSpec(),  # noqa: B008  (immutable)
        workspace: Workspace | None = None,
        copied_from: str = "",
    ) -> Environment:
        """Open a folder.

        Arguments:
            notices: messages for the user are added here. copied_from: see SharedWorkspace.
            workspace: the caller's own workspace in place of the folder.
        """
        sandbox = self.sandbox
        if isinstance(sandbox, str):
            sandbox = self._open_sandbox(sandbox, folder, notices)
        workspace = workspace or open_workspace(folder, *self.readable, copied_from=copied_from)
        policy = RulePolicy(
            self.permissions,
            workspace=workspace.root,
            user_home=self.user_home,
            tools=make_builtin_tools(),
            tier=lambda: sandbox.tier,
        )
        return Environment(spec=spec, workspace=workspace, sandbox=sandbox, policy=policy)

    def _open_sandbox(self, mode: str, folder: str, notices: list[str]) -> Sandbox:
        from .sandboxes.choose import SandboxRequest, choose_sandbox

        request = SandboxRequest(
            workspace=folder,
            mode=mode,
            home=self.home,
            environ=os.environ,
            network=self.allow_net,
            can_ask=self.can_ask,
        )
        sandbox, notice = choose_sandbox(request)
        if notice:
            notices.append(notice)
        return sandbox

    def open_copy(self, folder: str, copied_from: str) -> Environment:
        """Open a copy of a folder."""
        spec = WorkspaceSpec(WorkspaceKind.FOLDER, folder)
        return self.open(folder, [], spec=spec, copied_from=copied_from)


OpenCopy = Callable[[str, str], Environment]
"""Function that opens a copy: takes its absolute path and the path of the original folder."""


class SessionEnvironments:
    """The port Environments for one session.

    Arguments:
        shared: the environment of the session; its owner closes it.
        open_copy: opens the environment of a copy. None: the session has only the shared one.
    """

    def __init__(self, shared: Environment, open_copy: OpenCopy | None = None) -> None:
        self.shared = shared
        self._open_copy = open_copy

    @asynccontextmanager
    async def open(self, spec: WorkspaceSpec) -> AsyncGenerator[Environment]:
        """Open the environment of a run.

        The copy of a run is removed when the run ends. Raises WorkspaceError if it cannot be made.
        """
        if spec.kind is WorkspaceKind.SHARED:
            yield self.shared
            return
        if self._open_copy is None:
            raise UsageError(
                "this session cannot copy its folder",
                remedy="Use an agent that works in the shared folder.",
            )
        stack = ExitStack()
        stop = threading.Event()
        try:
            prepare = asyncio.to_thread(self._prepare, spec, self._open_copy, stack, stop)
            yield await _finish_in_thread(prepare, stop)
        finally:
            await asyncio.to_thread(stack.close)

    def _prepare(
        self, spec: WorkspaceSpec, open_copy: OpenCopy, stack: ExitStack, stop: threading.Event
    ) -> Environment:
        """Copy the folder if the spec asks for a new copy, and open the environment."""
        folder = spec.root
        missing = ""
        shared = self.shared.workspace
        if spec.kind is WorkspaceKind.COPY:
            from .workspaces.copy import make_temporary_copy

            source = open_workspace(spec.root) if spec.root else shared
            folder, missing = stack.enter_context(make_temporary_copy(source, stop))
        environment = open_copy(folder, shared.root)
        stack.callback(environment.sandbox.close)
        return replace(environment, missing=missing)


async def _finish_in_thread(
    work: Coroutine[Any, Any, Environment], stop: threading.Event
) -> Environment:
    """Wait for work in a thread. When cancelled, stop the work and wait for the thread to end."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # read it, or asyncio logs it as never retrieved
        raise
