"""The first three things to try, offline, in a small project."""

import json
from pathlib import Path
from typing import Any

from .conftest import Mudroom

PROJECT = {
    "pyproject.toml": (
        '[project]\nname = "kettle"\n\n[project.optional-dependencies]\ntest = ["pytest>=8"]\n'
    ),
    "kettle/heat.py": (
        '"""Turn watts into degrees."""\n\n\n'
        "def rise(watts, seconds):\n    return watts * seconds / 4186\n"
    ),
    "tests/test_heat.py": (
        "import pytest\nfrom kettle.heat import rise\n\n\n"
        "def test_rise():\n    assert rise(4186, 1) == 1\n"
    ),
}


async def test_the_first_three_things_to_try_work_offline(mudroom: Mudroom, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    async def ask(prompt: str) -> dict[str, Any]:
        flags = ("-C", str(folder), "-o", "json", "--permission-mode", "bypassPermissions")
        done = await mudroom("-p", prompt, "-m", "offline", *flags)
        assert done.code == 0, done.err
        return json.loads(done.out)

    found = await ask("Use a subtask to find what testing framework this project uses")
    assert "pytest" in found["result"].lower()
    assert found["ledger"]["children"] == 1 and found["reports"][0]["files_read"]

    summed = await ask("用子任务读取所有 .py 文件,并总结每个文件的作用")
    assert "heat.py" in summed["result"] and "test_heat.py" in summed["result"]
    read = {name for report in summed["reports"] for name in report["files_read"]}
    assert read >= {"kettle/heat.py", "tests/test_heat.py"}, "children read all files"

    made = await ask(
        "Use a task to create a new Python module tools/words.py with slugify and word_count,"
        " then verify it from here"
    )
    module = (folder / "tools/words.py").read_text()
    assert "def slugify" in module and "def word_count" in module
    (child,) = made["reports"]
    assert child["files_changed"] == ["tools/words.py"], "the child wrote it"
    calls = made["report"]["calls"]
    assert calls.get("bash") or calls.get("read"), "the parent verified it itself"
