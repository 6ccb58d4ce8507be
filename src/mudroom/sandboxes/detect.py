"""Which walls this machine can build: tried for real, remembered for a day, and never less than was asked for."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from .._core.ports import CommandResult, Sandbox
from .._platform.scratch_dirs import ScratchDir
from ..errors import UsageError, WorkspaceError
from .linux.seccomp import AUDIT_ARCH

SANDBOX_MODES = ("auto", "full", "file", "off")
"""What may be asked for."""

OFF_NOTICE = "sandbox off: commands run with all your rights, on all your files and the network"
_DAY = 86_400.0
_OTHER = """
import sys
sys.path.append(sys.argv[1])
from mudroom.sandboxes.linux.idmapped_mount import Stage
try:
    Stage([sys.argv[2]]).set()
    print("done")
except OSError as error:
    print(error.strerror)
"""
_INSTALL = "Install bubblewrap (apt install bubblewrap, dnf install bubblewrap)"


class Detected(Struct, frozen=True):
    """What there is.

    Arguments:
        bwrap: path of bubblewrap where it works, "" where not. no_full, no_file: why that tier cannot be had, "" if it can.
        no_other: why root's commands cannot run as another user in tier full, "" if they can, or this is not root.
    """

    bwrap: str = ""
    no_full_reason: str = ""
    no_file_reason: str = ""
    no_other_user_reason: str = ""

    @property
    def tier(self) -> str:
        """The best tier: "full", "file", or "" for none."""
        return (
            ""
            if self.no_full_reason and self.no_file_reason
            else "file"
            if self.no_full_reason
            else "full"
        )

    @property
    def weakness(self) -> str:
        """What tier full lacks here, as a person should hear it; "" if nothing."""
        return (
            f"commands keep root's number, because {self.no_other_user_reason}. Work as another user than root"
            if self.no_other_user_reason
            else ""
        )


class SandboxRequest(Struct, frozen=True, kw_only=True):
    """What a sandbox is to be.

    Arguments:
        root: the workspace. mode: one of MODES. home: folder of the harness's records, which no command sees.
        environ: the environment. network: whether commands reach it. person: whether somebody can be asked to confirm commands.
    """

    workspace: str
    mode: str
    state_dir: str
    environ: Mapping[str, str]
    network: bool = False
    can_ask: bool = False


def choose_sandbox(request: SandboxRequest) -> tuple[Sandbox, str]:
    """The sandbox asked for, and what the person should be told about it ("" if nothing).

    Raises UsageError when a tier was asked for that this machine does not have: there is no silent fall to a lower one.
    """
    if request.mode not in SANDBOX_MODES:
        raise UsageError(
            f"there is no sandbox {request.mode!r}", remedy=f"Known: {', '.join(SANDBOX_MODES)}."
        )
    if request.mode == "off":
        from .unsandboxed import Unsandboxed

        return Unsandboxed(request.workspace), OFF_NOTICE
    found = detect(request.workspace, request.environ, request.state_dir)
    missing = {"full": found.no_full_reason, "file": found.no_file_reason}.get(request.mode, "")
    if missing:
        raise UsageError(
            f"no sandbox {request.mode} here: {missing}",
            remedy=f"{_INSTALL}, or choose another with --sandbox.",
        )
    tier = found.tier if request.mode == "auto" else request.mode
    if not tier:
        return _without(request, found)
    told = (
        ""
        if tier == "full" or request.mode == "file"
        else f"sandbox file, not full: {found.no_full_reason}.{_stronger()}"
    )
    if tier == "full" and found.weakness:
        told = f"sandbox full, but {found.weakness} for stronger walls."
    return _walled(request, tier, found), told


def _stronger() -> str:
    return f" {_INSTALL} for stronger walls." if sys.platform == "linux" else ""


def _walled(terms: SandboxRequest, tier: str, found: Detected) -> Sandbox:
    away = os.path.join(terms.state_dir, "put-away")
    if tier == "full":
        from .linux.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(
            terms.workspace,
            found.bwrap,
            quarantine=away,
            environ=terms.environ,
            network=terms.network,
            hidden_dirs=(os.path.realpath(terms.state_dir),),
            keep_root_uid=bool(found.no_other_user_reason),
        )
    if sys.platform == "darwin":
        from .macos.seatbelt import Seatbelt

        return Seatbelt(terms.workspace, environ=terms.environ, network=terms.network)
    from .linux.landlock import LandlockSandbox

    return LandlockSandbox(
        terms.workspace, quarantine=away, environ=terms.environ, network=terms.network
    )


def _without(terms: SandboxRequest, found: Detected) -> tuple[Sandbox, str]:
    why = f"neither a full sandbox ({found.no_full_reason}) nor a file sandbox ({found.no_file_reason}) can be built here"
    if not terms.can_ask:
        return RefusingSandbox(
            why
        ), f"sandbox refuse: {why}, so no command runs. {_INSTALL}, or take --sandbox off."
    from .unsandboxed import Unsandboxed

    return AskingSandbox(
        Unsandboxed(terms.workspace)
    ), f"sandbox ask: {why}, so every command must be confirmed. {_INSTALL}."


class AskingSandbox:
    """Tier "ask": no walls; whoever sees this tier has each command confirmed by a person before it runs."""

    tier = "ask"

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner

    def close(self) -> None:
        """Let go of it."""
        self._inner.close()

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run a confirmed command."""
        return await self._inner.run(command, timeout=timeout, sink=sink)


class RefusingSandbox:
    """Tier "refuse": no walls, and nobody to ask: no command runs."""

    tier = "refuse"

    def __init__(self, why: str) -> None:
        self._why = why

    def close(self) -> None:
        """Nothing was ever started."""

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Raises WorkspaceError."""
        raise WorkspaceError(
            f"no command can run: {self._why}, and nobody is here to confirm it",
            remedy="Work with the file tools, and tell the user: install bubblewrap, or start mudroom with --sandbox off.",
        )


def detect(root: str, environ: Mapping[str, str], home: str) -> Detected:
    """What can be built here, from memory where nothing has changed since yesterday.

    Arguments:
        root: the workspace, from which no program is taken. home: folder of the memory.
    """
    path = find_bwrap(environ, root)
    key = [
        platform.release(),
        path,
        os.stat(path).st_mtime_ns if path else 0,
        os.geteuid(),
        sys.executable,
    ]
    key.append(os.stat(root).st_dev if os.path.isdir(root) else 0)
    memory = os.path.join(home, "sandbox.json")
    try:
        with open(memory, encoding="utf-8") as file:
            known = json.load(file)
        if known["key"] == key and 0 <= time.time() - known["at"] < _DAY:
            return Detected(**known["found"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = run_probes(path, root)
    _write_cache(
        memory,
        {
            "key": key,
            "at": time.time(),
            "found": {n: getattr(found, n) for n in Detected.__struct_fields__},
        },
    )
    return found


def find_bwrap(environment: Mapping[str, str], root: str) -> str:
    """Path of bwrap, "" without. One that lies in the workspace is none: a command could have put it there."""
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.realpath(os.path.join(folder, "bwrap"))
        if (
            os.path.isabs(folder)
            and not path.startswith(root.rstrip("/") + "/")
            and os.access(path, os.X_OK)
            and os.path.isfile(path)
        ):
            return path
    return ""


def run_probes(bwrap: str, root: str = ".") -> Detected:
    """Try it now. `bwrap`: path of bubblewrap, "" where there is none. `root`: a workspace."""
    no_full = _probe_full(bwrap)
    return Detected(
        "" if no_full else bwrap,
        no_full,
        _probe_file(),
        "" if no_full or os.geteuid() != 0 else _probe_other_user(root),
    )


def _probe_full(bwrap: str) -> str:
    if reason := _unsupported_reason():
        return reason
    if not bwrap:
        return "bubblewrap (bwrap) is not installed"
    from .linux.bubblewrap import NAMESPACES

    with ScratchDir() as folder:
        target = os.path.join(folder, "target")
        with open(target, "w", encoding="utf-8"):
            pass
        walls = [
            "--unshare-net",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--remount-ro",
            "/",
        ]
        argv = [
            bwrap,
            *NAMESPACES.split(),
            *walls,
            "--",
            "/bin/sh",
            "-c",
            f"echo x > {target}; test -e {target} && echo tried",
        ]
        try:
            ran = subprocess.run(
                argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{bwrap} cannot be run: {error}"
        if ran.stdout.strip() != b"tried":
            words = ran.stderr.decode("utf-8", "replace").strip().splitlines()
            return f"{bwrap} fails: {words[-1] if words else f'exit code {ran.returncode}'}"
        return (
            f"{bwrap} does not hold: a command could write outside"
            if os.path.getsize(target)
            else ""
        )


def _probe_other_user(root: str) -> str:
    """It is tried in a process of its own, whose mounts are not ours."""
    house = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        argv = [sys.executable, "-I", "-S", "-c", _OTHER, house, root]
        ran = subprocess.run(
            argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"it cannot be tried: {error}"
    words = ran.stdout.decode("utf-8", "replace").strip()
    return (
        ""
        if words == "done"
        else f"the workspace cannot be made another user's ({words or f'exit code {ran.returncode}'})"
    )


def _probe_file() -> str:
    if sys.platform == "darwin":
        return "" if os.access("/usr/bin/sandbox-exec", os.X_OK) else "there is no sandbox-exec"
    if reason := _unsupported_reason():
        return reason
    from .linux import landlock

    known = landlock.landlock_version()
    if known < landlock.MIN_VERSION:
        return f"this kernel's Landlock is version {known}, {landlock.MIN_VERSION} is needed (Linux 6.2)"
    return ""


def _unsupported_reason() -> str:
    if sys.platform != "linux":
        return f"{sys.platform} has no namespaces"
    if platform.machine() not in AUDIT_ARCH:
        return f"the system calls of {platform.machine()} are not known"
    return "" if shutil.which("bash", path="/bin") else "there is no /bin/bash"


def _write_cache(memory: str, what: dict[str, object]) -> None:
    try:
        os.makedirs(os.path.dirname(memory), mode=0o700, exist_ok=True)
        text, new = (
            json.dumps(what).encode(),
            f"{memory}~",
        )  # one name for all: of many who are killed here one file is left
        with open(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb"
        ) as file:
            file.write(text)
        os.replace(new, memory)
    except OSError:
        pass  # it is tried again next time
