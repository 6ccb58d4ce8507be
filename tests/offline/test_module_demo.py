"""The writing demo.

A child writes the module, the parent reads and runs it; nothing is overwritten.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.offline.conftest import Ask

TREE = {"a.py": "x = 1\n"}
FUNCTIONS = ["capitalize", "reverse_string", "is_palindrome", "truncate", "slugify", "word_count"]


async def test_the_child_writes_and_the_parent_verifies(ask: Ask, tmp_path: Path) -> None:
    report = await ask(TREE, "Use a task to create a new module, then verify it from here")
    assert report.calls == {"task": 1, "read": 1, "bash": 1}
    assert report.text.startswith("✅ `string_utils.py` was created and verified")
    assert '| truncate | `"Hello, World!", 5` | `"Hello..."` | `"Hello..."` | ✅ |' in report.text
    assert (tmp_path / "tree" / "string_utils.py").exists()


async def test_it_works_in_chinese(ask: Ask) -> None:
    prompt = "用任务创建一个包含 slugify、word_count 函数的新模块,然后在这里验证"
    report = await ask(TREE, prompt)
    assert "验证通过" in report.text
    assert "| word_count |" in report.text and "| capitalize |" not in report.text


async def test_every_function_passes_its_cases(ask: Ask) -> None:
    names = ", ".join(FUNCTIONS)
    report = await ask(TREE, f"Create a new module with the functions {names}, and verify it")
    assert report.text.startswith("✅"), report.text
    assert all(f"| {name} |" in report.text for name in FUNCTIONS)
    assert "❌" not in report.text


async def test_an_existing_file_is_never_overwritten(ask: Ask, tmp_path: Path) -> None:
    tree = {
        "string_utils.py": "mine = 1\n",
        "string_utils_2.py": "mine = 2\n",
        ".gitignore": "string_utils_2.py\n",
    }
    report = await ask(tree, "create a new module")
    assert "`string_utils_3.py`" in report.text
    assert [(tmp_path / "tree" / name).read_text() for name in tree] == list(tree.values())


async def test_the_path_in_the_request_is_used(ask: Ask, tmp_path: Path) -> None:
    report = await ask(
        TREE, "Create a new module at src/tools/text.py with slugify and word_count, then verify it"
    )
    assert "`src/tools/text.py` was created and verified" in report.text
    assert "def slugify" in (tmp_path / "tree/src/tools/text.py").read_text()


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("Create a module with frobnicate and slugify", "cannot do “frobnicate”"),
        ("Create a module with the function frobnicate", "cannot do “frobnicate”"),
        ("Create a JavaScript module with slugify", "cannot do “JavaScript”"),
        ("Create a new module at a.js", "cannot do “js”"),
        ("Create a new module that parses CSV files", "cannot do “that parses CSV”"),
        ("Create a new module, but do not verify it", "plain instruction"),
        ("If the tests fail, create a new module", "plain instruction"),
        ("Create a new module?", "plain instruction"),
        ("写一个包含 add、subtract 函数的 JavaScript 模块", "JavaScript"),
        ("Do not create a new module", "It can:"),
        ("How would you create a new module?", "It can:"),
        ("不要创建新模块", "它可以"),
    ],
)
async def test_nothing_is_written_for(ask: Ask, tmp_path: Path, prompt: str, reason: str) -> None:
    report = await ask(TREE, prompt)
    assert report.reason == "ERROR" and reason in report.error
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == ["a.py"]
