"""Environment port: opens the files, the sandbox and the permission policy of one run."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from ..agents import WorkspaceSpec
from .approval import Policy
from .isolation import Isolation
from .sandbox import Sandbox
from .workspace import Workspace


class Environment(Struct, frozen=True, kw_only=True):
    """The surroundings of a run.

    Arguments:
        spec: the workspace spec for runs that share this environment, such as children.
        missing: files missing from a copy of the folder, with reasons; "" if complete.
        folder: path of the files as commands see it; "" if it is the workspace root.
        isolation: the files as trees; None if children cannot have isolated workspaces.
    """

    spec: WorkspaceSpec
    workspace: Workspace
    sandbox: Sandbox
    policy: Policy
    missing: str = ""
    folder: str = ""
    isolation: Isolation | None = None


class Environments(Protocol):
    """Opens an environment for each run and closes it when the run ends."""

    @property
    def shared(self) -> Environment:
        """The environment of the session, which stays open."""
        ...

    @property
    def sees_folder(self) -> bool:
        """True if this process sees the folder of the session."""
        ...

    def open(self, spec: WorkspaceSpec) -> AbstractAsyncContextManager[Environment]:
        """Open the environment of a run. Raises MudroomError on entry if it cannot be opened."""
        ...
