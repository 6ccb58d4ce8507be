"""The attacks as an ordinary user, if the tests run as root. `make attacks` runs all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOME = "01_ or 06_ or 09_ or 15_ or 17_ or 19b or 24_ or 27_ or 30_ or 36_ or 39_ or 79_"


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user")
def test_the_attacks_that_tell_root_and_user_apart() -> None:
    chosen = ["-k", SOME] if not os.environ.get("ATTACKS_ALL") else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *chosen,
        str(HERE / "test_bash.py"),
    ]
    ran = subprocess.run(
        [sys.executable, str(HERE / "as_user.py"), *command],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if "may not make mounts" in ran.stderr:
        pytest.skip(ran.stderr)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
