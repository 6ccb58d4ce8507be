"""scripts/newer_versions: packages of `make fits` that have a newer version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "newer_versions"


def compare(folder: Path, **installed: str) -> str:
    """Return what the script prints for these versions; all that are used are 1.0.0."""
    wanted = folder / "wanted"
    wanted.mkdir(parents=True)
    dependencies = {"plain": "1.0.0", "@a/b": "1.0.0"}
    (wanted / "package.json").write_text(json.dumps({"dependencies": dependencies}))
    (wanted / "examples.txt").write_text("# words\nan-sdk==1.0.0 \\\n    --hash=sha256:00\n")
    place = folder / "place"
    for name, version in (("plain", installed["plain"]), ("@a/b", installed["scoped"])):
        (place / "node_modules" / name).mkdir(parents=True)
        text = json.dumps({"version": version})
        (place / "node_modules" / name / "package.json").write_text(text)
    (place / "examples").mkdir()
    (place / "examples" / f"an_sdk-{installed['sdk']}.tar.gz").touch()
    command = [sys.executable, str(SCRIPT), str(wanted), str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_each_package_with_a_newer_version_is_named(tmp_path: Path) -> None:
    assert compare(tmp_path / "1", plain="1.0.0", scoped="2.1.0", sdk="1.0.1").splitlines() == [
        "@a/b: 1.0.0 is used, 2.1.0 is the newest",
        "an-sdk: 1.0.0 is used, 1.0.1 is the newest",
    ]
    same = compare(tmp_path / "2", plain="1.0.0", scoped="1.0.0", sdk="1.0.0")
    assert same == "All 3 packages are the newest.\n"
