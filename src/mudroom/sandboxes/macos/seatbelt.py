"""macOS, tier "file": a profile by which sandbox-exec holds commands. Its text is tested; it has not been run on a Mac yet."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping

from ..._core.ports import CommandResult
from ..._platform.protected_names import OWN_PREFIX, PROTECTED_NAMES
from ..._platform.scratch_dirs import ScratchDir
from ..environment import select_allowed
from ..linux.exposed_paths import SELF_TEST_TIMEOUT, SelfTest, find_toolchains
from ..unsandboxed import Unsandboxed

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
_INNER = ("hooks", "config", "config.worktree", "commondir")


class SeatbeltSandbox:
    """The port Sandbox, tier "file" on macOS. Arguments: see Bubblewrap."""

    tier = "file"

    def __init__(
        self, workspace: str, *, environ: Mapping[str, str], network: bool = False
    ) -> None:
        temporary = ScratchDir()
        weakref.finalize(self, temporary.remove)
        root, private = os.path.realpath(workspace), os.path.realpath(temporary.path)
        text = build_profile(
            root,
            private,
            readable=find_toolchains(environ, environ.get("HOME", "/")),
            network=network,
        )
        env = {"PATH": os.defpath, **select_allowed(environ), "HOME": private, "TMPDIR": private}
        self._plain = Unsandboxed(root, env, lambda command: build_argv(text, command))
        self._trial = SelfTest(self._run)

    def close(self) -> None:
        """Let go of what plain commands need."""
        self._plain.close()

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run the command behind the walls; see the port. Raises WorkspaceError when they do not hold."""
        await self._trial.ensure_passed()
        return await self._run(command, sink, timeout)

    async def _run(
        self, command: str, sink: Callable[[bytes], None], timeout: float = SELF_TEST_TIMEOUT
    ) -> CommandResult:
        return await self._plain.run(command, timeout=timeout, sink=sink)


def build_profile(
    root: str, private: str, *, readable: Iterable[str] = (), network: bool = False
) -> str:
    """The text for `sandbox-exec -p`: everything denied but what is named.

    Arguments:
        root: the workspace, links resolved. private: folder for temporary files and the home. readable: further folders to read.
        network: whether commands reach it.

    Later rules win: what is protected comes last, and no folder above the workspace may be renamed, which would move it away.
    """
    above = [root]
    while (parent := os.path.dirname(above[-1])) != above[-1]:
        above.append(parent)
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        '(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))',
        "(allow file-read-metadata)",
        *(f"(allow file-read* (subpath {_text(path)}))" for path in (*_READABLE, *readable)),
        *(f"(allow file-read* file-write* (subpath {_text(path)}))" for path in (root, private)),
        '(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))',
        *(f"(deny file-write-unlink file-write-create (literal {_text(path)}))" for path in above),
        f"(deny file-write* (regex {_regex(root)}))",
        f"(deny file-write-unlink (literal {_text(os.path.join(root, '.git'))}))",
        *(
            f"(deny file-write* (subpath {_text(os.path.join(root, '.git', name))}))"
            for name in _INNER
        ),
    ]
    if network:
        lines.append("(allow network*)")
    return "\n".join(lines) + "\n"


def build_argv(text: str, command: str) -> list[str]:
    """The command line that runs `command` under a profile."""
    return [SANDBOX_EXEC, "-p", text, "/bin/bash", "-c", command]


def _regex(root: str) -> str:
    """Protected names at the root but the git folder, whose inside is partly free; in any case of letters, as its file systems have it."""
    names = "|".join(_any_case(name) for name in sorted(PROTECTED_NAMES - {".git"}))
    return f'#"^{_any_case(root, fold=False)}/({names}|{_any_case(OWN_PREFIX)}[^/]*)(/.*)?$"'


def _any_case(text: str, *, fold: bool = True) -> str:
    return "".join(
        f"[{c.lower()}{c.upper()}]"
        if fold and c.isalpha()
        else c
        if c.isalnum() or c in "/_-"
        else f"[{c}]"
        for c in text
    )


def _text(path: str) -> str:
    if '"' in path or "\\" in path or "\n" in path:
        raise ValueError(f"{path!r} cannot stand in a profile")
    return f'"{path}"'
