"""`scripts/demo`: the run of `make demo` without the installation."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from mudroom._cli.output.notices.start import OFFLINE_LINE

ROOT = Path(__file__).parents[2]


def run_demo(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a copy of the demo on a small project with the same folder."""
    project = tmp_path / "project"
    if not project.exists():
        (project / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "demo", project / "scripts" / "demo")
        subject = "src/mudroom/testing"
        shutil.copytree(ROOT / subject, project / subject)
        (project / ".venv").symlink_to(ROOT / ".venv")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "MUDROOM_HOME": str(tmp_path / "home"),
        "MUDROOM_OFFLINE_PACE": "0",
        "ANTHROPIC_API_KEY": "sk-not-used",
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        ["sh", "scripts/demo"],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_demo_shows_children_the_ledger_and_what_to_do_next(tmp_path: Path) -> None:
    first = run_demo(tmp_path)
    assert first.returncode == 0, first.stderr
    assert "| `src/mudroom/testing/clock.py` |" in first.stdout
    lines = first.stderr.splitlines()
    assert lines[0] == "> mudroom -p \\"
    assert lines[1].startswith('  "Use subtasks: summarize what each .py file in ')
    assert max(map(len, [*lines[:2], *lines[-2:]])) <= 80, "a word breaks at the edge of a terminal"
    assert "children read" in lines[-5] and "% less than without children" in lines[-5]
    assert lines[-4] == OFFLINE_LINE
    assert lines[-2].startswith("next: .venv/bin/mudroom view")
    assert "No API key" not in first.stderr and "offline model" not in first.stderr
    assert "sandbox" not in run_demo(tmp_path).stderr, "a notice about the machine comes once"
