"""Text of the Seatbelt profile for macOS: denials come after what is allowed."""

from __future__ import annotations

import re

import pytest

from mudroom._adapters.sandboxes.seatbelt import build_argv, build_profile
from mudroom._platform.protected_names import PROTECTED_NAMES

TEXT = build_profile("/Users/x/proj", "/private/tmp/mudroom-1", readable=["/Users/x/.pyenv"])


def find_line(line: str) -> int:
    """Return the number of the line that begins with this text."""
    return next(n for n, text in enumerate(TEXT.splitlines()) if text.startswith(line))


def test_the_network_is_denied_until_it_is_granted() -> None:
    assert "network" not in TEXT
    assert "(allow network*)" in build_profile("/w", "/t", network=True)


@pytest.mark.parametrize(
    "name", [*sorted(PROTECTED_NAMES - {".git"}), ".mudroom.toml", ".MudRoom", ".VSCODE"]
)
def test_protected_names_are_denied_in_any_case_and_below(name: str) -> None:
    denied = re.search(r'\(deny file-write\* \(regex #"(.*)"\)\)', TEXT)
    assert denied and find_line("(deny file-write* (regex") > find_line(
        "(allow file-read* file-write*"
    )
    for path in (f"/Users/x/proj/{name}", f"/Users/x/proj/{name}/deep/file"):
        assert re.match(denied[1], path), path
    assert (
        not re.match(denied[1], f"/Users/x/proj/{name}x")
        or name.startswith(".mudroom")
        or name == ".MudRoom"
    )
    assert not re.match(denied[1], "/Users/x/proj/src/main.py")
    assert not re.match(denied[1], f"/Users/xyproj/{name}")


def test_a_path_with_quotes_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be quoted in a profile"):
        build_profile('/x")(allow default)("', "/t")


def test_the_command_is_a_single_argument() -> None:
    assert build_argv(TEXT, "echo 'a b'")[-2:] == ["-c", "echo 'a b'"]


LINES = [
    "(version 1)",
    "(deny default)",
    "(allow process-fork process-exec)",
    "(allow signal (target same-sandbox))",
    "(allow sysctl-read)",
    '(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))',
    "(allow file-read-metadata)",
    *(
        f'(allow file-read* (subpath "{path}"))'
        for path in (
            *(
                "/usr",
                "/bin",
                "/sbin",
                "/System",
                "/Library",
                "/opt",
                "/private/etc/ssl",
                "/private/var/db/timezone",
                "/dev",
            ),
            "/Users/x/.pyenv",
        )
    ),
    '(allow file-read* file-write* (subpath "/Users/x/proj"))',
    '(allow file-read* file-write* (subpath "/private/tmp/mudroom-1"))',
    '(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))',
    *(
        f'(deny file-write-unlink file-write-create (literal "{path}"))'
        for path in ("/Users/x/proj", "/Users/x", "/Users", "/")
    ),
    '(deny file-write-unlink (literal "/Users/x/proj/.git"))',
    *(
        f'(deny file-write* (subpath "/Users/x/proj/.git/{name}"))'
        for name in ("commondir", "config", "config.worktree", "hooks")
    ),
]


def test_the_profile_has_exactly_these_lines() -> None:
    """The regex of protected names is tested above, name by name."""
    assert [line for line in TEXT.splitlines() if "(regex" not in line] == LINES
