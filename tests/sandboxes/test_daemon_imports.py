"""Imports of the sandbox daemon: the standard library, and modules that promise to need no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
import json, sys
sys.path.append(sys.argv[1])
import mudroom._adapters.sandboxes.linux.daemon.main
own = {name for name in sys.modules if name.partition(".")[0] == "mudroom"}
other = sorted({name.partition(".")[0] for name in sys.modules.keys() - own})
print(json.dumps([{name: sys.modules[name].__doc__ for name in own}, other]))
"""
PACKAGES = {
    "mudroom",
    "mudroom._version",
    "mudroom._platform",
    "mudroom._adapters.sandboxes",
    "mudroom._adapters.sandboxes.linux",
    "mudroom._adapters.sandboxes.linux.daemon",
}
"""Packages above the daemon's modules, and the version that the first one imports."""


def test_the_daemon_imports_only_the_standard_library() -> None:
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(SOURCE)]
    output = subprocess.run(argv, env={}, capture_output=True, text=True, check=True).stdout
    docs: dict[str, str]
    other: list[str]
    docs, other = json.loads(output)
    assert set(other) - sys.stdlib_module_names <= {"__main__"}
    for name in docs.keys() - PACKAGES:
        assert "standard library only" in docs[name].lower(), name
    assert {name for name in docs if name.startswith("mudroom._platform.")} == {
        "mudroom._platform.imports",
        "mudroom._platform.patterns",
        "mudroom._platform.processes",
        "mudroom._platform.protected_names",
        "mudroom._platform.scratch_dirs",
    }
