"""Detects which sandboxes work on this machine: tries each one, and caches the result."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from ..._core.ports.environment import SEATBELT_MODE
from ..._platform.child_programs import find_program
from ..._platform.scratch_dirs import ScratchDir
from .linux.kernel import MIN_LANDLOCK, NAMESPACE_OPTIONS, get_landlock_version

_CACHE_SECONDS = 86_400.0
_PROBE_TIMEOUT = 10
_MOUNT_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from mudroom._adapters.sandboxes.linux.daemon.idmapped_mount import IdmappedMounts
try:
    IdmappedMounts([sys.argv[2]]).mount_all()
    print("done")
except OSError as error:
    print(error.strerror)
"""


class Detected(Struct, frozen=True):
    """This machine's sandboxes. An empty reason means that it works.

    Arguments:
        bwrap: the path of bubblewrap if tier full works, else "".
        no_other_user_reason: why root's commands cannot run as another user in tier full.
        ignored_bwrap: the path of a bubblewrap ignored because it is in the workspace.
    """

    bwrap: str = ""
    no_full_reason: str = ""
    no_file_reason: str = ""
    no_other_user_reason: str = ""
    ignored_bwrap: str = ""

    @property
    def tier(self) -> str:
        """The best tier: "full", "file", or "" for none."""
        if not self.no_full_reason:
            return "full"
        return "" if self.no_file_reason else "file"

    @property
    def full_remedy(self) -> str:
        if sys.platform == "darwin":
            return f"Try --sandbox {SEATBELT_MODE}"
        if self.ignored_bwrap:
            return "Start mudroom in a folder without bubblewrap"
        return "Install bubblewrap (apt install bubblewrap, dnf install bubblewrap)"

    @property
    def weakness(self) -> str:
        if not self.no_other_user_reason:
            return ""
        return f"commands keep root's user id, because {self.no_other_user_reason}"


class _Cache(Struct, frozen=True):
    key: list[str | int]
    at: float
    found: Detected


_caches: dict[str, _Cache] = {}  # this process's results by key, for state folders without a cache


def detect(workspace: str, environ: Mapping[str, str], home: str) -> Detected:
    """Detect what works here; cached for a day, or until something relevant changes.

    A state folder without a cache gets this process's result, if there is one. Programs in the
    workspace are never used.
    """
    bwrap = find_bwrap(environ, workspace)
    ignored = "" if bwrap else find_bwrap(environ)
    key = [
        sys.platform,
        platform.release(),
        bwrap,
        ignored,
        os.stat(bwrap).st_mtime_ns if bwrap else 0,
        os.geteuid(),
        sys.executable,
        os.stat(workspace).st_dev if os.path.isdir(workspace) else 0,
    ]
    path = os.path.join(home, "sandbox.json")
    is_new = not os.path.exists(path)
    cache = _caches.get(str(key)) if is_new else _read_cache(path)
    if cache is None or cache.key != key or not 0 <= time.time() - cache.at < _CACHE_SECONDS:
        cache = _Cache(key, time.time(), run_probes(bwrap, workspace, ignored=ignored))
        _caches[str(key)] = cache
        is_new = True
    if is_new:
        _write_cache(path, cache)
    return cache.found


def find_bwrap(environ: Mapping[str, str], workspace: str = "") -> str:
    """Find bwrap; "" if there is none.

    A bwrap in the workspace is ignored: a command could have put it there.
    """
    program = find_program("bwrap", environ.get("PATH", os.defpath), workspace)
    return os.path.realpath(program) if program else ""


def probe(environ: Mapping[str, str], workspace: str) -> Detected:
    bwrap = find_bwrap(environ, workspace)
    return run_probes(bwrap, workspace, ignored="" if bwrap else find_bwrap(environ))


def run_probes(bwrap: str, workspace: str = ".", *, ignored: str = "") -> Detected:
    """Try every sandbox now. `ignored`: a bubblewrap in the workspace."""
    no_full_reason = _probe_full(bwrap, ignored)
    checks_user = not no_full_reason and os.geteuid() == 0
    return Detected(
        bwrap="" if no_full_reason else bwrap,
        no_full_reason=no_full_reason,
        no_file_reason=_probe_file(),
        no_other_user_reason=_probe_other_user(workspace) if checks_user else "",
        ignored_bwrap=ignored,
    )


def _probe_full(bwrap: str, ignored: str) -> str:
    """Explain why tier full does not work; "" if it does: a command must not write outside."""
    if reason := _find_unsupported_reason():
        return reason
    if not bwrap and ignored:
        return f"{ignored} is not used, because it is in the workspace"
    if not bwrap:
        return "bubblewrap (bwrap) is not installed"
    with ScratchDir() as folder:
        target = os.path.join(folder, "target")
        with open(target, "w", encoding="utf-8"):
            pass
        command = f"echo x > {target}; test -e {target} && echo tried"
        argv = [bwrap, *NAMESPACE_OPTIONS, "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev"]
        argv += ["--proc", "/proc", "--remount-ro", "/", "--", "/bin/sh", "-c", command]
        try:
            result = _run(argv)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{bwrap} cannot be run: {error}"
        if result.stdout.strip() != b"tried":
            lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
            return f"{bwrap} fails: {lines[-1] if lines else f'exit code {result.returncode}'}"
        if os.path.getsize(target):
            return f"{bwrap} does not isolate: a command could write outside"
    return ""


def _probe_other_user(workspace: str) -> str:
    """Explain why root's commands cannot run as another user; "" if they can.

    Tried in a separate process, so that this process's mounts do not change.
    """
    source_dir = os.path.abspath(f"{__file__}/../../../..")
    argv = [sys.executable, "-I", "-S", "-c", _MOUNT_PROGRAM, source_dir, workspace]
    try:
        result = _run(argv)
    except (OSError, subprocess.SubprocessError) as error:
        return f"it cannot be tried: {error}"
    output = result.stdout.decode("utf-8", "replace").strip()
    if output == "done":
        return ""
    reason = output or f"exit code {result.returncode}"
    return f"the workspace cannot be mapped to another user ({reason})"


def _run(argv: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        argv,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_TIMEOUT,
        check=False,
    )


def _probe_file() -> str:
    if sys.platform == "darwin":
        return f"Seatbelt is experimental and used only with --sandbox {SEATBELT_MODE}"
    if reason := _find_unsupported_reason():
        return reason
    version = get_landlock_version()
    if version < MIN_LANDLOCK:
        return f"this kernel's Landlock is version {version}, {MIN_LANDLOCK} is needed (Linux 6.2)"
    return ""


def _find_unsupported_reason() -> str:
    if sys.platform != "linux":
        return f"{sys.platform} has no namespaces"
    from .linux.seccomp import AUDIT_ARCH

    if platform.machine() not in AUDIT_ARCH:
        return f"the system calls of {platform.machine()} are not known"
    return "" if shutil.which("bash", path="/bin") else "there is no /bin/bash"


def _read_cache(path: str) -> _Cache | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Cache)
    except (OSError, ValueError, msgspec.DecodeError):
        return None


def _write_cache(path: str, cache: _Cache) -> None:
    # A fixed name for the new file: however often writers are killed, only one file is left.
    temporary = f"{path}~"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(cache))
        os.replace(temporary, path)
    except OSError:
        pass  # the sandboxes will be tried again next time
