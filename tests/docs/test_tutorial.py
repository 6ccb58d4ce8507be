"""Every step of the tutorial works, in its order, for a user without a key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.shell_page import STEP, PageShell, make_environ

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"


@pytest.mark.timeout(600)  # many programs, one after the other: slow on a busy machine
def test_every_step_of_the_tutorial_works(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    shell = PageShell(ROOT, make_environ(tmp_path / "home"))
    try:
        shell.follow(PAGE)
    finally:
        shell.close()
    for part in ("make demo", "mudroom view", "mudroom agents new", "python describe.py", "resume"):
        assert any(part in command for command in shell.ran), part


def test_every_block_of_the_tutorial_is_a_step() -> None:
    text = PAGE.read_text("utf-8")
    assert len(STEP.findall(text)) == len(re.findall(r"^```\w+$", text, re.MULTILINE))
