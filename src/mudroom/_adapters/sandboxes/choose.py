"""Chooses a session's sandbox, and has the tiers used where no sandbox works."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from msgspec import Struct

from ..._core.ports import CommandResult, Sandbox
from ..._core.ports.environment import SANDBOX_MODES, SEATBELT_MODE
from ...errors import UsageError, WorkspaceError
from .detect import Detected, detect

_OFF_NOTICE = "sandbox off: commands run with all your rights, on all your files and the network"


class SandboxRequest(Struct, frozen=True, kw_only=True):
    """Settings for choosing a sandbox.

    Arguments:
        workspace: the absolute path.
        mode: one of SANDBOX_MODES.
        home: mudroom's state folder, which no command sees.
        can_ask: whether a user can confirm commands.
        shown_at: path where a full sandbox shows the workspace; "" for its own.
        read_only: folders that commands may read: path in the workspace -> absolute path. A full
            sandbox shows them in the workspace, a file sandbox at their own paths.
    """

    workspace: str
    mode: str
    home: str
    environ: Mapping[str, str]
    network: bool = False
    can_ask: bool = False
    shown_at: str = ""
    read_only: Mapping[str, str] = {}


def choose_sandbox(request: SandboxRequest) -> tuple[Sandbox, str]:
    """Choose the requested sandbox; return it and a notice for the user ("" for none).

    Raises UsageError if the mode is unknown, or its tier does not work here: it never falls back to
    a weaker one.
    """
    if request.mode not in SANDBOX_MODES:
        raise UsageError(
            f"unknown sandbox {request.mode!r}", remedy=f"Known: {', '.join(SANDBOX_MODES)}."
        )
    if request.mode == "off":
        from .unsandboxed import Unsandboxed

        return Unsandboxed(request.workspace), _OFF_NOTICE
    if request.mode == SEATBELT_MODE:
        return _open_seatbelt(request)
    detected = detect(request.workspace, request.environ, request.home)
    reasons = {"full": detected.no_full_reason, "file": detected.no_file_reason}
    if reason := reasons.get(request.mode):
        raise UsageError(
            f"no sandbox {request.mode} here: {reason}",
            remedy=f"{detected.full_remedy}, or choose another with --sandbox.",
        )
    tier = detected.tier if request.mode == "auto" else request.mode
    if tier == "full":
        return _open_full(request, detected)
    if tier == "file":
        remedy = detected.full_remedy
        notice = f"sandbox file, not full: {detected.no_full_reason}. {remedy} for tier full."
        return _open_file(request), "" if request.mode == "file" else notice
    return _open_without(request, detected)


def _open_full(request: SandboxRequest, detected: Detected) -> tuple[Sandbox, str]:
    environ = dict(request.environ)

    def create() -> Sandbox:
        from .linux.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(
            request.workspace,
            detected.bwrap,
            quarantine=_choose_quarantine(request),
            environ=environ,
            network=request.network,
            hidden_dirs=(os.path.realpath(request.home),),
            shown_at=request.shown_at,
            read_only=request.read_only,
            keep_root_uid=bool(detected.no_other_user_reason),
        )

    sandbox = DeferredSandbox("full", create)
    if not detected.weakness:
        return sandbox, ""
    remedy = "Start mudroom as another user than root for a stronger sandbox."
    return sandbox, f"sandbox full, but {detected.weakness}. {remedy}"


def _open_file(request: SandboxRequest) -> Sandbox:
    from .linux.exposed_paths import check_no_links
    from .linux.landlock import LandlockSandbox

    try:
        check_no_links(request.read_only.values())
    except OSError as error:
        raise WorkspaceError(str(error.strerror), where=request.workspace) from error
    return LandlockSandbox(
        request.workspace,
        quarantine=_choose_quarantine(request),
        environ=request.environ,
        network=request.network,
        read_only=tuple(request.read_only.values()),
    )


def _choose_quarantine(request: SandboxRequest) -> str:
    return os.path.join(request.home, "put-away")


def _open_seatbelt(request: SandboxRequest) -> tuple[Sandbox, str]:
    from .seatbelt import SANDBOX_EXEC, SeatbeltSandbox

    if sys.platform != "darwin" or not os.access(SANDBOX_EXEC, os.X_OK):
        raise UsageError(
            f"no sandbox {SEATBELT_MODE} here: it needs macOS and {SANDBOX_EXEC}",
            remedy="Choose another with --sandbox.",
        )
    sandbox = SeatbeltSandbox(request.workspace, environ=request.environ, network=request.network)
    return sandbox, f"sandbox {SEATBELT_MODE}: its profile has not been tested on a Mac yet"


def _open_without(request: SandboxRequest, detected: Detected) -> tuple[Sandbox, str]:
    why = (
        f"neither a full sandbox ({detected.no_full_reason}) nor a file sandbox "
        f"({detected.no_file_reason}) works here"
    )
    remedy = detected.full_remedy
    if not request.can_ask:
        notice = f"sandbox refuse: {why}, so no command runs. {remedy}, or use --sandbox off."
        return RefusingSandbox(why), notice
    from .unsandboxed import Unsandboxed

    notice = f"sandbox ask: {why}, so every command must be confirmed. {remedy}."
    return Unsandboxed(request.workspace, tier="ask"), notice


class DeferredSandbox:
    """Sandbox port: creates the sandbox at the first command, because many runs execute none."""

    def __init__(self, tier: str, create: Callable[[], Sandbox]) -> None:
        self.tier = tier
        self._create = create
        self._sandbox: Sandbox | None = None

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        if self._sandbox is None:
            self._sandbox = self._create()
        return await self._sandbox.run(command, timeout=timeout, sink=sink)


class RefusingSandbox:
    """Sandbox port, tier refuse: no sandbox works and no user can confirm, so no command runs."""

    tier = "refuse"

    def __init__(self, why: str) -> None:
        self._why = why

    def close(self) -> None: ...

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        raise WorkspaceError(
            f"no command can run: {self._why}, and no user can confirm it",
            remedy="Work with the file tools, and tell the user: install bubblewrap, or start "
            "mudroom with --sandbox off.",
        )
