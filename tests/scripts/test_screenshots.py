"""Pictures of the terminal at one width, in both languages and themes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_terminal_is_drawn_at_forty_columns() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "screenshots", "terminal", "40"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for name in ("en-dark", "en-light", "zh-dark", "zh-light"):
        picture = (ROOT / "build" / "screenshots" / f"terminal-40-{name}.svg").read_text("utf-8")
        words = re.sub(r"<[^>]*>", " ", picture).replace("\u00a0", " ")
        assert "came back" in " ".join(words.split())
        assert ("#fdfdfd" in picture) == name.endswith("light")
