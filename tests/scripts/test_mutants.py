"""scripts/mutants: its arguments, and the changes that it counts."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "mutants"


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=SCRIPT.parents[1],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "module, tests"),
        (("src/mudroom/missing.py", "tests/journals"), "src/mudroom/missing.py does not exist"),
        (("src/mudroom/errors.py", "tests/missing.py::test_x"), "tests/missing.py does not exist"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], problem: str) -> None:
    result = run_script(*arguments)
    assert result.returncode == 2
    assert problem in result.stderr and "usage: mutants" in result.stderr


@pytest.mark.parametrize(
    ("before", "after", "is_text"),
    [
        ('raise Error("a")', 'raise Error("XXaXX")', True),
        ("x = a < b", "x = a <= b", False),
        ('x = f("a", 1)', 'x = f("A", 2)', False),
    ],
)
def test_a_change_of_a_text_only_is_recognized(before: str, after: str, is_text: bool) -> None:
    changes_text_only: Callable[[str], bool] = runpy.run_path(str(SCRIPT))["changes_text_only"]
    assert changes_text_only(f"--- a\n+++ b\n@@\n-{before}\n+{after}\n") is is_text
