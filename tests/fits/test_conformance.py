"""The conformance suite of MCP with mudroom's client and server. Run: make fits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

PLACE = os.environ.get("MUDROOM_FITS", "")
SECONDS = 300
"""Limit of one scenario; all run at once."""

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(2 * SECONDS),
]


FOLDER = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")


def run_suite(folder: Path, *arguments: str) -> str:
    """Run a part of the suite with the known failures; return its output."""
    done = subprocess.run(
        [
            str(Path(PLACE, "node_modules", ".bin", "conformance")),
            *arguments,
            *("--expected-failures", str(FOLDER / "conformance.yml")),
            *("--timeout", str(SECONDS * 1000)),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-20_000:]
    return done.stdout


@pytest.fixture
def server_url(tmp_path: Path) -> Generator[str]:
    """Address of a server for the suite."""
    with subprocess.Popen(
        [sys.executable, str(FOLDER / "conformance_server.py"), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout
        yield server.stdout.readline().strip()
        server.stdin.close()


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_client_passes_the_conformance_suite(revision: str, tmp_path: Path) -> None:
    command = f"{sys.executable} {FOLDER / 'conformance_client.py'}"
    run_suite(tmp_path, "client", "--requirements", revision, "--command", command)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_server_passes_the_conformance_suite(
    revision: str, tmp_path: Path, server_url: str
) -> None:
    output = run_suite(tmp_path, "server", "--requirements", revision, "--url", server_url)
    results = re.findall(r"^(.) tasks-\S+:", output, re.MULTILINE)  # extensions are not scored
    assert results == (["✓"] * 10 if revision == REVISIONS[-1] else [])
