"""Tier file, for machines without namespaces: Landlock and a seccomp filter restrict commands.

Landlock covers files, TCP and signals; the filter refuses all sockets.
"""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Callable, Iterator, Mapping

from ...._core.ports import CommandResult
from ...._platform.scratch_dirs import ScratchDir
from ....errors import WorkspaceError
from ..environ import SYSTEM_DIRS, find_toolchains, select_allowed
from ..self_test import SelfTestedSandbox
from .daemon.protocol import DaemonSetup, ResourceLimits
from .daemon_client import DaemonClient
from .exposed_paths import ETC_DIRS, ETC_FILES, make_git_config
from .kernel import SYS_CREATE_RULESET, get_landlock_version
from .seccomp import build_filter

SCOPES_VERSION = 6  # first version that covers signals and abstract sockets (Linux 6.12)
_TCP_VERSION = 4

_SYS_ADD_RULE = 445
_RULE_PATH_BENEATH = 1
_NET_BIND_AND_CONNECT_TCP = 3
_SCOPE_SOCKETS_AND_SIGNALS = 3

_ALL_RIGHTS = 0xFFFF
_READ = 0x000D  # execute, read file, read folder
_WRITE_FILE = 0x0002
_WRITE = 0x7FFF & ~0x0840 | 0x8000  # everything except making device nodes
_RIGHTS_BY_VERSION = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)
_FILE_RIGHTS = 0xC007  # that a rule for a file may have: execute, write, read, truncate, ioctl

_DEVICES = ["null", "zero", "full", "random", "urandom"]
_MORE_ETC = [
    "passwd",
    "group",
    "hosts",
    "nsswitch.conf",
    "ld.so.conf",
    "ld.so.conf.d",
    "bash.bashrc",
    "profile",
    "profile.d",
    "terminfo",
    "inputrc",
    "host.conf",
    "gai.conf",
]


class LandlockSandbox(SelfTestedSandbox):
    """Sandbox port, tier file. Arguments: see BubblewrapSandbox."""

    tier = "file"

    def __init__(
        self,
        workspace: str,
        *,
        quarantine: str,
        environ: Mapping[str, str],
        network: bool = False,
        read_only: tuple[str, ...] = (),
        limits: ResourceLimits | None = None,
    ) -> None:
        super().__init__()
        workspace = os.path.realpath(workspace)
        user_home = os.path.realpath(environ.get("HOME", "/nonexistent"))
        scratch = ScratchDir()
        weakref.finalize(self, scratch.remove)
        self._env = _make_environment(environ, scratch.path)
        with open(os.path.join(self._env["HOME"], ".gitconfig"), "w", encoding="utf-8") as file:
            file.write(make_git_config(user_home))
        toolchains = [*find_toolchains(environ, user_home), *read_only]
        rules = dict(_make_rules(workspace, scratch.path, toolchains, network=network))
        ruleset = create_ruleset(rules, network=network)
        weakref.finalize(self, os.close, ruleset)
        self._client = DaemonClient(
            DaemonSetup(
                workspace=workspace,
                quarantine=quarantine,
                limits=(limits or ResourceLimits())._asdict(),
                seccomp_filter=build_filter(allow_internet=network).hex(),
                restore_existing=True,
            ),
            tier=self.tier,
            ruleset=ruleset,
        )

    def close(self) -> None:
        """End the daemon. Running commands continue to their own end."""
        self._client.close()

    async def _run_isolated(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        argv = ["/bin/bash", "-c", command]
        return await self._client.run(argv, self._env, timeout=timeout, sink=sink)


def _make_environment(environ: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Make the variables, home and temporary folder of commands; return the variables."""
    home = os.path.join(scratch, "home")
    temporary = os.path.join(scratch, "tmp")
    os.mkdir(home, 0o700)
    os.mkdir(temporary, 0o700)
    return {
        "PATH": os.defpath,
        **select_allowed(environ),
        "HOME": home,
        "TMPDIR": temporary,
        "USER": environ.get("USER", "user"),
        "SHELL": "/bin/bash",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def create_ruleset(
    rules: Mapping[str, int], *, network: bool, handled_rights: int = _ALL_RIGHTS
) -> int:
    """Create a Landlock ruleset that allows only what `rules` say; return its descriptor.

    Arguments:
        rules: path -> rights. Paths that do not exist are left out.
        network: allow TCP.
        handled_rights: rights on files to refuse unless a rule grants them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = get_landlock_version()
    handled = _RIGHTS_BY_VERSION[min(version, len(_RIGHTS_BY_VERSION) - 1)] & handled_rights
    attributes = struct.pack("=Q", handled)
    if version >= _TCP_VERSION:
        attributes += struct.pack("=Q", 0 if network else _NET_BIND_AND_CONNECT_TCP)
    if version >= SCOPES_VERSION:
        attributes += struct.pack("=Q", _SCOPE_SOCKETS_AND_SIGNALS)
    size = ctypes.c_size_t(len(attributes))
    ruleset = int(libc.syscall(SYS_CREATE_RULESET, attributes, size, 0))
    if ruleset < 0:
        raise WorkspaceError(f"this kernel has no Landlock: {os.strerror(ctypes.get_errno())}")
    os.set_inheritable(ruleset, False)
    for path, rights in rules.items():
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        possible = _ALL_RIGHTS if os.path.isdir(path) else _FILE_RIGHTS
        rule = struct.pack("=Qi", rights & handled & possible, descriptor)
        libc.syscall(_SYS_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
        os.close(descriptor)
    return ruleset


def _make_rules(
    workspace: str, scratch: str, toolchains: list[str], *, network: bool
) -> Iterator[tuple[str, int]]:
    for path in (*SYSTEM_DIRS, *toolchains, "/proc"):
        yield path, _READ
    for name in (*ETC_DIRS, *ETC_FILES, *_MORE_ETC, *(("resolv.conf",) if network else ())):
        yield os.path.realpath(f"/etc/{name}"), _READ
    yield "/dev/fd", _READ
    for name in _DEVICES:
        yield f"/dev/{name}", _READ | _WRITE_FILE
    for path in (workspace, scratch):
        yield path, _READ | _WRITE
