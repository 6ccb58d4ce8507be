"""The page for MCP hosts names the scenarios of the conformance suite that do not pass."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "mcp-host.md").read_text()


def test_the_page_lists_the_expected_failures_of_the_suite() -> None:
    failures = (ROOT / "tests" / "fits" / "conformance.yml").read_text()
    expected = re.findall(r"^  - (\S+)$", failures, re.MULTILINE)
    section = PAGE.partition("## Not supported")[2]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(expected)


def test_the_page_names_the_version_of_the_suite() -> None:
    package = json.loads((ROOT / "requirements" / "fits" / "package.json").read_text())
    version = package["dependencies"]["@modelcontextprotocol/conformance"]
    assert f"`@modelcontextprotocol/conformance` {version}" in PAGE
