"""Shape of the instructions that models read."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_no_instruction_ends_a_line_with_a_backslash() -> None:
    pages = list(SOURCE.rglob("*.md"))
    assert {"main.md", "plan.md", "bash.md"} <= {page.name for page in pages}
    lines = [(page.name, line) for page in pages for line in page.read_text("utf-8").splitlines()]
    assert [(name, line) for name, line in lines if line.endswith("\\")] == []
