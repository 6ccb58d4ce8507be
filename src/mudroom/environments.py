"""Environments of a session: the shared folder, or a copy of it for one run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct

from ._core.agents import WorkspaceKind, WorkspaceSpec
from ._core.ports import Environment, Sandbox, Workspace
from .adapters import open_sandbox, open_workspace
from .errors import UsageError
from .permissions.policy import RulePolicy
from .permissions.rules import Permissions
from .tools import builtin_tools


class EnvironmentFactory(Struct, frozen=True, kw_only=True):
    """Opens folders as environments with the options of a session.

    Arguments:
        home: folder of the session files. user_home: the user's home.
        sandbox: see `SessionOptions.sandbox`. can_ask: true if a user can approve commands.
        readable: folders outside the workspace that may be read.
    """

    permissions: Permissions
    home: str
    user_home: str
    sandbox: str
    allow_net: bool
    can_ask: bool
    readable: tuple[str, ...]

    def open(
        self, folder: str, notices: list[str], *, spec: WorkspaceSpec, copied_from: str = ""
    ) -> Environment:
        """Open a folder.

        Arguments:
            notices: messages for the user are added here. copied_from: see SharedWorkspace.
        """
        sandbox = open_sandbox(
            self.sandbox, folder, self.home, notices, self.allow_net, self.can_ask
        )
        workspace = open_workspace(folder, *self.readable, copied_from=copied_from)
        return make_environment(workspace, sandbox, self.permissions, self.user_home, spec)

    def open_copy(self, folder: str, copied_from: str) -> Environment:
        """Open a copy of a folder."""
        spec = WorkspaceSpec(WorkspaceKind.FOLDER, folder)
        return self.open(folder, [], spec=spec, copied_from=copied_from)


def make_environment(
    workspace: Workspace,
    sandbox: Sandbox,
    permissions: Permissions,
    user_home: str,
    spec: WorkspaceSpec | None = None,
) -> Environment:
    """Return the environment of a workspace and a sandbox."""
    policy = RulePolicy(
        permissions,
        workspace=workspace.root,
        user_home=user_home,
        tools=builtin_tools(),
        tier=lambda: sandbox.tier,
    )
    return Environment(
        spec=spec or WorkspaceSpec(), workspace=workspace, sandbox=sandbox, policy=policy
    )


OpenCopy = Callable[[str, str], Environment]
"""(absolute path of a copy, path of the original folder) -> environment."""


class SessionEnvironments:
    """The port Environments.

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
        """Copy the folder if the run gets a copy of its own, and open it."""
        folder = spec.root
        shared = self.shared.workspace
        if spec.kind is WorkspaceKind.COPY:
            from .workspaces.copy import copied_folder

            source = open_workspace(spec.root) if spec.root else shared
            folder = stack.enter_context(copied_folder(source, stop))
        environment = open_copy(folder, shared.root)
        stack.callback(environment.sandbox.close)
        return environment


async def _finish_in_thread(
    work: Coroutine[Any, Any, Environment], stop: threading.Event
) -> Environment:
    """Wait for work in a thread, also when cancelled: the thread must not go on alone."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # asyncio complains about an exception that is never read
        raise
