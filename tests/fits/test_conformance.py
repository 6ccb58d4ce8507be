"""The conformance suite of MCP with mudroom's client, for both revisions. Run: make fits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACE = os.environ.get("MUDROOM_FITS", "")
SECONDS = 300
"""Limit of one scenario; all run at once."""

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(2 * SECONDS),
]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_client_passes_the_conformance_suite(revision: str, tmp_path: Path) -> None:
    folder = Path(__file__).parent
    done = subprocess.run(
        [
            str(Path(PLACE, "node_modules", ".bin", "conformance")),
            *("client", "--requirements", revision),
            *("--command", f"{sys.executable} {folder / 'conformance_client.py'}"),
            *("--expected-failures", str(folder / "conformance.yml")),
            *("--timeout", str(SECONDS * 1000)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-20_000:]
