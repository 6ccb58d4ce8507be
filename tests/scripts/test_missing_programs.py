"""The line at the end of a test run that names missing programs."""

from __future__ import annotations

from tests.conftest import describe_missing

REASONS = [
    "Skipped: no sandbox full here",
    "Skipped: bwrap is not installed",
    "Skipped: there is no chromium here; .ci/run installs it",
    "Skipped: root only",
    "Skipped: MUDROOM_LONG=1 runs it",
]


def test_missing_programs_are_counted_and_named() -> None:
    assert describe_missing(REASONS, lambda program: None) == (
        "skipped because a program is missing: bubblewrap (2), chromium (1); "
        "apt install bubblewrap chromium"
    )


def test_installed_programs_are_not_named() -> None:
    assert describe_missing(REASONS, lambda program: f"/usr/bin/{program}") == ""
    assert describe_missing(["Skipped: root only"], lambda program: None) == ""
