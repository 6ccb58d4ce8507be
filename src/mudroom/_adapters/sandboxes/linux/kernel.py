"""The kernel features sandboxes need: namespaces for tier full, Landlock for tier file.

They show whether a sandbox works here, before any sandbox code is loaded.
"""

from __future__ import annotations

NAMESPACE_OPTIONS = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--disable-userns",
    "--as-pid-1",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
)
"""bubblewrap's options for every command. A network namespace is added unless it is granted."""

SYS_CREATE_RULESET = 444
_CREATE_RULESET_VERSION = 1
MIN_LANDLOCK = 3  # covers truncation (Linux 6.2); before, commands could empty files outside


def get_landlock_version() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    import ctypes  # slow to import

    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(SYS_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    return max(0, int(version))
