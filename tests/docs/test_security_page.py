"""The page about security names the tests that prove its claims."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def list_claims() -> list[list[str]]:
    page = (ROOT / "SECURITY.md").read_text()
    section = page.partition("## What is protected")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_each_claim_names_tests_that_exist() -> None:
    claims = list_claims()
    assert len(claims) > 15
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"def (test_\w+)\(", sources))
    for area, _, tests in claims:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, f"{area}: no test"
        assert not set(names) - existing, f"{area}: {sorted(set(names) - existing)}"
