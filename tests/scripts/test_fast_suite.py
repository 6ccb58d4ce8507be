"""The suite of `make test-fast` leaves out each test that starts a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.fast_suite import FastSuite

def pytest_configure(config):
    config.pluginmanager.register(FastSuite(config))
"""
TESTS = """
import asyncio
import subprocess
import pytest

def test_without():
    pass

def test_with():
    subprocess.run(["true"])

def test_that_survives_the_refusal():
    with pytest.raises(BaseException):
        subprocess.run(["true"])

async def test_with_a_task_for_which_another_waits():
    never = asyncio.Event()
    work = asyncio.create_task(asyncio.create_subprocess_exec("true"))
    await never.wait()

@pytest.fixture(scope="module")
def program():
    return subprocess.run(["true"])

def test_with_a_fixture(program):
    pass

def test_with_the_same_fixture(program):
    pass
"""
ONLY_PROCESSES = "import os\n\ndef test_fork():\n    if not os.fork():\n        os._exit(0)\n"


def run(folder: Path) -> dict[str, int]:
    """Return the numbers in the last line of pytest."""
    command = [sys.executable, "-m", "pytest", "-o", "asyncio_mode=auto", "--rootdir", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "-W", "ignore", "--timeout", "60"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    return {name: int(number) for number, name in re.findall(r"(\d+) ([a-z]+)", last)}


def test_a_test_is_ended_by_its_first_process_and_then_left_out(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_all.py").write_text(ONLY_PROCESSES)
    first = run(tmp_path)
    assert (first["passed"], first["skipped"]) == (1, 6)
    second = run(tmp_path)
    assert (second["passed"], second["deselected"]) == (1, 5)
    assert "skipped" not in second
    (tmp_path / "test_some.py").write_text(TESTS + "\n")
    third = run(tmp_path)
    assert (third["passed"], third["skipped"]) == (1, 5)
