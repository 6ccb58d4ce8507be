"""Tier file on macOS: sandbox-exec restricts commands by a profile.

Experimental: the profile's text is tested, but it has not run on a Mac. It is used only when
requested by name.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping

from ..._core.ports import CommandResult
from ..._platform.protected_names import OWN_PREFIX, PROTECTED_NAMES
from ..._platform.scratch_dirs import ScratchDir
from .environ import find_toolchains, select_allowed
from .linux.daemon.protected_files import GIT_SETTINGS
from .self_test import SelfTestedSandbox
from .unsandboxed import Unsandboxed

SANDBOX_EXEC = "/usr/bin/sandbox-exec"

_READABLE = (
    "/usr",
    "/bin",
    "/sbin",
    "/System",
    "/Library",
    "/opt",
    "/private/etc/ssl",
    "/private/var/db/timezone",
    "/dev",
)


class SeatbeltSandbox(SelfTestedSandbox):
    """Sandbox port, tier file on macOS. Arguments: see BubblewrapSandbox."""

    tier = "file"

    def __init__(
        self, workspace: str, *, environ: Mapping[str, str], network: bool = False
    ) -> None:
        super().__init__()
        scratch = ScratchDir()
        weakref.finalize(self, scratch.remove)
        workspace = os.path.realpath(workspace)
        private = os.path.realpath(scratch.path)
        toolchains = find_toolchains(environ, environ.get("HOME", "/"))
        profile = build_profile(workspace, private, readable=toolchains, network=network)
        env = {"PATH": os.defpath, **select_allowed(environ), "HOME": private, "TMPDIR": private}
        self._shell = Unsandboxed(workspace, env, lambda command: build_argv(profile, command))

    def close(self) -> None:
        self._shell.close()

    async def _run_isolated(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        return await self._shell.run(command, timeout=timeout, sink=sink)


def build_profile(
    workspace: str, private: str, *, readable: Iterable[str] = (), network: bool = False
) -> str:
    """Build the text for `sandbox-exec -p`, which denies everything it does not name.

    Later rules win, so protected names come last. Folders above the workspace may not be renamed,
    which would move the workspace away. `private` is the folder for temporary files and the home.
    """
    parents = [workspace]
    while (parent := os.path.dirname(parents[-1])) != parents[-1]:
        parents.append(parent)
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        '(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))',
        "(allow file-read-metadata)",
    ]
    for path in (*_READABLE, *readable):
        lines.append(f"(allow file-read* (subpath {_quote(path)}))")
    for path in (workspace, private):
        lines.append(f"(allow file-read* file-write* (subpath {_quote(path)}))")
    lines.append('(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))')
    for path in parents:
        lines.append(f"(deny file-write-unlink file-write-create (literal {_quote(path)}))")
    lines.append(f"(deny file-write* (regex {_make_protected_regex(workspace)}))")
    git_dir = os.path.join(workspace, ".git")
    lines.append(f"(deny file-write-unlink (literal {_quote(git_dir)}))")
    for name in GIT_SETTINGS:
        lines.append(f"(deny file-write* (subpath {_quote(os.path.join(git_dir, name))}))")
    if network:
        lines.append("(allow network*)")
    return "\n".join(lines) + "\n"


def build_argv(profile: str, command: str) -> list[str]:
    return [SANDBOX_EXEC, "-p", profile, "/bin/bash", "-c", command]


def _make_protected_regex(workspace: str) -> str:
    """Make a pattern for the protected names except the git folder, whose contents may change.

    It ignores case, as macOS file systems do.
    """
    names = "|".join(_escape(name, ignore_case=True) for name in sorted(PROTECTED_NAMES - {".git"}))
    own = _escape(OWN_PREFIX, ignore_case=True)
    return f'#"^{_escape(workspace)}/({names}|{own}[^/]*)(/.*)?$"'


def _escape(text: str, *, ignore_case: bool = False) -> str:
    escaped = ""
    for c in text:
        if ignore_case and c.isalpha():
            escaped += f"[{c.lower()}{c.upper()}]"
        elif c.isalnum() or c in "/_-":
            escaped += c
        else:
            escaped += f"[{c}]"
    return escaped


def _quote(path: str) -> str:
    if '"' in path or "\\" in path or "\n" in path:
        raise ValueError(f"{path!r} cannot be quoted in a profile")
    return f'"{path}"'
