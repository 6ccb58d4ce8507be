"""Tier "file": where no namespaces are to be had: Landlock holds files, TCP and signals, a seccomp filter all sockets."""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Callable, Iterator, Mapping

from ..._core.ports import CommandResult
from ..._platform.scratch_dirs import ScratchDir
from ...errors import WorkspaceError
from ..environment import select_allowed
from .daemon_client import DaemonClient, ResourceLimits, SandboxSetup
from .exposed_paths import (
    ETC_DIRS,
    ETC_FILES,
    SELF_TEST_TIMEOUT,
    SYSTEM_DIRS,
    SelfTest,
    find_toolchains,
    make_git_config,
)
from .seccomp import build_filter

MIN_VERSION = 3
"""Landlock's version that holds truncation, too (Linux 6.2); below it a file outside could be emptied."""
SCOPES_VERSION = 6
"""The version that keeps signals and abstract sockets in (Linux 6.12)."""

_CREATE, _ADD, _VERSION, _BENEATH = 444, 445, 1, 1
_READ = 0x000D  # execute, read file, read folder
_WRITE = (
    0x7FFF & ~0x0840 | 0x8000
)  # all but device nodes; those of folders and the control of devices with them
_ALL = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)
_FILE_ONLY = 0xC007  # what a rule on a single file may say: execute, write, read, truncate, control
_DEVICES = "null zero full random urandom"
_MORE = "passwd group hosts nsswitch.conf ld.so.conf ld.so.conf.d bash.bashrc profile profile.d terminfo inputrc host.conf gai.conf"


def landlock_version() -> int:
    """Landlock's version, 0 where the kernel has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)))


class LandlockSandbox:
    """The port Sandbox, tier "file".

    Arguments: see Bubblewrap; `hidden` is what no rule is given for, so it needs no word here.
    """

    tier = "file"

    def __init__(
        self,
        workspace: str,
        *,
        quarantine: str,
        environ: Mapping[str, str],
        network: bool = False,
        limits: ResourceLimits | None = None,
    ) -> None:
        root, limits = os.path.realpath(workspace), limits or ResourceLimits()
        home = os.path.realpath(environ.get("HOME", "/nonexistent"))
        private = ScratchDir()
        weakref.finalize(self, private.remove)
        places = {name: os.path.join(private.path, name) for name in ("tmp", "home")}
        for folder in places.values():
            os.mkdir(folder, 0o700)
        kept = {"PATH": os.defpath, **select_allowed(environ)}
        with open(os.path.join(places["home"], ".gitconfig"), "w", encoding="utf-8") as file:
            file.write(make_git_config(home))
        own = {
            "HOME": places["home"],
            "TMPDIR": places["tmp"],
            "USER": environ.get("USER", "user"),
            "SHELL": "/bin/bash",
        }
        self._env = kept | own | {"GIT_CONFIG_NOSYSTEM": "1"}
        rules = create_ruleset(
            dict(_rules(root, private.path, find_toolchains(environ, home), network)),
            network=network,
        )
        weakref.finalize(self, os.close, rules)
        code = build_filter(allow_internet=network)
        walls = SandboxSetup(
            workspace=root,
            quarantine=quarantine,
            tier=self.tier,
            limits=limits,
            landlock_ruleset=rules,
            seccomp_filter=code,
            restore_existing=True,
            counts_user_threads=True,
        )
        self._launcher = DaemonClient(walls)
        self._trial = SelfTest(self._run)

    def close(self) -> None:
        """End the program that starts commands; those that run go on to their own end."""
        self._launcher.close()

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run the command behind the walls; see the port. Raises WorkspaceError when they cannot be built or do not hold."""
        await self._trial.ensure_passed()
        return await self._run(command, sink, timeout)

    async def _run(
        self, command: str, sink: Callable[[bytes], None], timeout: float = SELF_TEST_TIMEOUT
    ) -> CommandResult:
        return await self._launcher.run(self._argv(command), self._env, timeout=timeout, sink=sink)

    def _argv(self, command: str) -> list[str]:
        return ["/bin/bash", "-c", command]


def create_ruleset(rules: Mapping[str, int], *, network: bool, handled_rights: int = 0xFFFF) -> int:
    """Descriptor of a Landlock ruleset that allows what `rules` say (path -> rights) and nothing else.

    Arguments:
        network: whether TCP is left alone. held: the rights on files that are refused where no rule gives them.

    Raises WorkspaceError where the kernel has no Landlock.
    """
    libc, known = ctypes.CDLL(None, use_errno=True), landlock_version()
    handled = _ALL[min(known, len(_ALL) - 1)] & handled_rights
    attributes = struct.pack(
        "=QQQ", handled, 0 if network or known < 4 else 3, 3 if known >= SCOPES_VERSION else 0
    )
    size = 8 if known < 4 else 16 if known < SCOPES_VERSION else 24
    made = int(libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0))
    if made < 0:
        raise WorkspaceError(f"this kernel has no Landlock: {os.strerror(ctypes.get_errno())}")
    os.set_inheritable(made, False)
    for path, rights in rules.items():
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = rights & handled & (0xFFFF if os.path.isdir(path) else _FILE_ONLY)
        libc.syscall(_ADD, made, _BENEATH, struct.pack("=Qi", allowed, place), 0)
        os.close(place)
    return made


def _rules(root: str, private: str, tools: list[str], network: bool) -> Iterator[tuple[str, int]]:
    for path in (*SYSTEM_DIRS, *tools, "/proc"):
        yield path, _READ
    for name in (*ETC_DIRS, *ETC_FILES, *_MORE.split(), *(("resolv.conf",) if network else ())):
        yield os.path.realpath(f"/etc/{name}"), _READ
    yield "/dev/fd", _READ
    for name in _DEVICES.split():
        yield f"/dev/{name}", _READ | 0x0002
    for path in (root, private):
        yield path, _READ | _WRITE
