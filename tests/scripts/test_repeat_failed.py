"""Failed tests are repeated once, and what passes then is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "repeat-failed"

UNSTEADY = """
from pathlib import Path

def test_fails_the_first_time():
    mark = Path(__file__).with_name("mark")
    seen = mark.exists()
    mark.touch()
    assert seen

def test_passes():
    pass
"""

BROKEN = "def test_always_fails():\n    assert False\n"

MANY = "".join(f"def test_{number}():\n    assert False\n" for number in range(11))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project with the script and the Python of this environment."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the other plugins cost a second
    return tmp_path


def repeat(project: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (project / "test_it.py").write_text(tests)
    suite = [".venv/bin/python", "-m", "pytest", "-q", "-n", "0"]
    subprocess.run(suite, cwd=project, check=False, capture_output=True)
    script = project / ".ci" / "repeat-failed"
    return subprocess.run([script], cwd=project, check=False, capture_output=True, text=True)


def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_gate(project: Path) -> None:
    result = repeat(project, UNSTEADY)
    assert result.returncode == 0, result.stdout + result.stderr
    end = result.stdout.partition("UNSTEADY")[2]
    assert "test_it.py::test_fails_the_first_time" in end
    assert "test_passes" not in end
    assert "1 passed" in result.stdout


@pytest.mark.parametrize("tests", [BROKEN, MANY, "import nothing_of_this_name\n"])
def test_what_fails_again_fails_the_gate(project: Path, tests: str) -> None:
    assert repeat(project, tests).returncode == 1


def test_a_run_that_ended_without_a_failed_test_fails_the_gate(project: Path) -> None:
    result = repeat(project, "def test_passes():\n    pass\n")
    assert result.returncode == 1
    assert "0 failed tests" in result.stdout
