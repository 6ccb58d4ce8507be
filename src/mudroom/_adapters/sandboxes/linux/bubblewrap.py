"""Tier full: commands in their own namespaces, built by bubblewrap.

A command sees the system read-only, the workspace, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from ...._core.ports import CommandResult
from ....errors import WorkspaceError
from ..environ import SYSTEM_DIRS, find_toolchains, select_allowed
from ..self_test import SelfTestedSandbox
from .daemon.protocol import (
    ETC_PLACEHOLDER,
    FILTER_FD,
    GATE_FD,
    LEFT_FD,
    MARK_VARIABLE,
    STATUS_FD,
    DaemonSetup,
    ResourceLimits,
)
from .daemon_client import DaemonClient
from .exposed_paths import (
    ETC_DIRS,
    ETC_FILES,
    check_no_links,
    find_linked_git,
    find_protected,
    find_secret_dirs,
    make_git_config,
)
from .kernel import NAMESPACE_OPTIONS
from .seccomp import build_filter

SANDBOX_HOME = "/home/user"  # home folder of commands: empty, in memory, removed with the command

_INIT = f"""\
exec 2> /dev/null
(exec 2>&1 {LEFT_FD}>&-; exec /bin/bash -c "$1")
code=$?
left=-1
for folder in /proc/[0-9]*; do
  read -r line < "$folder/stat" || continue
  case "${{line##*) }}" in [ZX]*) ;; *) left=$((left + 1)) ;; esac
done
echo "$left" >&{LEFT_FD}
exit "$code"
"""
"""The first process of a sandbox: runs a command, then counts the remaining processes, except
itself. They all end with it, so nobody could count them later. It starts no program, because its
shell reads procfs faster than a program starts. Its own messages, about signals, are dropped."""

_ROOT_WRITABLE = ["sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr"]
"""Entries of procfs that root may write without any capability."""

_ETC_TEXTS = {
    "passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        f"user:x:1000:1000:user:{SANDBOX_HOME}:/bin/bash\n"
        "nobody:x:65534:65534::/:/bin/false\n"
    ),
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class BubblewrapSandbox(SelfTestedSandbox):
    """Sandbox port, tier full.

    Arguments:
        workspace: writable at its own path, or at `shown_at`.
        quarantine: see DaemonSetup.
        environ: the variables from which to select those for commands.
        hidden_dirs: more folders of the workspace to hide from commands.
        shown_at: absolute path where commands see the workspace; "" for its own.
        read_only: folders that commands see in the workspace but may only read: path in the
            workspace -> absolute path.
        keep_root_uid: if this process runs as root, commands keep root's user id, because the
            workspace cannot be mapped to another user. If False, failing to map it is an error, and
            nothing runs.
    """

    tier = "full"

    def __init__(
        self,
        workspace: str,
        bwrap: str,
        *,
        quarantine: str,
        environ: Mapping[str, str],
        network: bool = False,
        hidden_dirs: tuple[str, ...] = (),
        shown_at: str = "",
        read_only: Mapping[str, str] | None = None,
        limits: ResourceLimits | None = None,
        keep_root_uid: bool = False,
    ) -> None:
        super().__init__()
        self._workspace = os.path.realpath(workspace)
        self._hidden_dirs = hidden_dirs
        self._shown_at = shown_at or self._workspace
        self._read_only = dict(read_only or {})
        self._user_home = os.path.realpath(environ.get("HOME", "/nonexistent"))
        limits = limits or ResourceLimits()
        toolchains = find_toolchains(environ, self._user_home)
        extra_dirs = (*toolchains, *find_linked_git(self._workspace), *self._read_only.values())
        is_root = os.geteuid() == 0
        etc_files = _make_etc(self._user_home, network=network)
        self._client = DaemonClient(
            DaemonSetup(
                workspace=self._workspace,
                quarantine=quarantine,
                limits=limits._asdict(),
                uses_bwrap=True,
                etc_paths=[*etc_files],
                other_user=is_root and not keep_root_uid,
                extra_dirs=extra_dirs,
            ),
            tier=self.tier,
            contents=[build_filter(allow_internet=True), *etc_files.values()],
        )
        self._options = [
            bwrap,
            *_make_namespace_options(network=network),
            *_make_environment_options(environ),
            *("--json-status-fd", str(STATUS_FD), "--block-fd", str(GATE_FD)),
            *("--seccomp", str(FILTER_FD)),
            *_make_system_options(
                toolchains,
                scratch_bytes=limits.scratch,
                read_only_proc=_ROOT_WRITABLE if is_root and keep_root_uid else (),
            ),
        ]

    @property
    def daemon_pid(self) -> int:
        """Process id of the daemon that starts commands; 0 if none is running."""
        return self._client.daemon_pid

    def close(self) -> None:
        """End the daemon. Running commands continue to their own end."""
        self._client.close()

    async def _run_isolated(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        try:
            argv = self.build_argv(command)
        except OSError as error:
            raise WorkspaceError(
                f"the workspace cannot be read: {error.strerror}", where=self._workspace
            ) from error
        return await self._client.run(argv, {}, timeout=timeout, sink=sink)

    def build_argv(self, command: str) -> list[str]:
        return [
            *self._options,
            *self._make_workspace_options(),
            *("--remount-ro", "/", "--chdir", self._shown_at),
            *("--", "/bin/sh", "-c", _INIT, "sh", command),
        ]

    def _make_workspace_options(self) -> Iterator[str]:
        """Yield the mounts of the workspace and of its unchangeable parts."""
        for folder in find_linked_git(self._workspace):
            yield from ("--ro-bind", folder, folder)
        yield from ("--bind", self._workspace, self._shown_at)
        for folder in (*find_secret_dirs(self._shown_at, self._user_home), *self._hidden_dirs):
            if folder.startswith(self._shown_at + "/") and os.path.isdir(self._find_own(folder)):
                yield from ("--tmpfs", folder, "--remount-ro", folder)
        for path, may_change_inside in find_protected(self._workspace):
            option = "--bind" if may_change_inside else "--ro-bind"
            yield from (option, path, self._shown_at + path.removeprefix(self._workspace))
        check_no_links(self._read_only.values())
        for name, folder in self._read_only.items():
            yield from ("--ro-bind", folder, f"{self._shown_at}/{name}")

    def _find_own(self, path: str) -> str:
        return self._workspace + path.removeprefix(self._shown_at)


def _make_namespace_options(*, network: bool) -> Iterator[str]:
    yield from NAMESPACE_OPTIONS
    yield from ("--unsetenv", MARK_VARIABLE)
    yield from ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
    if not network:
        yield "--unshare-net"


def _make_environment_options(environ: Mapping[str, str]) -> Iterator[str]:
    variables = {
        "PATH": os.defpath,
        **select_allowed(environ),
        "HOME": SANDBOX_HOME,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/bash",
    }
    for name, value in variables.items():
        yield from ("--setenv", name, value)


def _make_system_options(
    toolchains: list[str], *, scratch_bytes: int, read_only_proc: list[str] | tuple[()]
) -> Iterator[str]:
    """Yield the other mounts: read-only, or empty and in memory.

    Every mount slows down every command.
    """
    for folder in SYSTEM_DIRS:
        if os.path.islink(folder):
            yield from ("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder) and (folder != "/opt" or os.listdir(folder)):
            yield from ("--ro-bind", folder, folder)
    yield from ("--ro-bind", ETC_PLACEHOLDER, "/etc")
    for name in ETC_DIRS:
        path = f"/etc/{name}"
        if os.path.isdir(path):
            yield from ("--ro-bind", os.path.realpath(path), path)
    yield from ("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys")
    for name in read_only_proc:
        yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
    yield from ("--size", str(scratch_bytes), "--tmpfs", "/tmp")
    yield from ("--dir", "/tmp/.home", "--dir", "/run")
    yield from ("--symlink", "/tmp", "/var/tmp", "--symlink", "/tmp/.home", SANDBOX_HOME)
    for folder in toolchains:
        yield from ("--ro-bind-try", folder, folder)


def _make_etc(user_home: str, *, network: bool) -> dict[str, bytes]:
    """Make the /etc that commands see: path -> content, b"" for a folder to mount another on."""
    etc = {path: text.encode() for path, text in _ETC_TEXTS.items()}
    etc |= {name: b"" for name in ETC_DIRS if os.path.isdir(f"/etc/{name}")}
    for name in (*ETC_FILES, *(("resolv.conf",) if network else ())):
        try:
            with open(f"/etc/{name}", "rb") as file:
                etc[name] = file.read(1 << 20) or b"\n"
        except OSError:
            continue
    etc["gitconfig"] = make_git_config(user_home).encode()
    return etc
