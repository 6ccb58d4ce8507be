"""Creating a module and verifying it: a child writes, the parent reads and runs; nothing is overwritten, nothing is invented."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.offline.conftest import Ask

from mudroom_offline.recipes import RECIPES, camel, recipe
from mudroom_offline.wishes import function_names

node = pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")


async def test_the_child_creates_and_the_parent_verifies(ask: Ask, tmp_path: Path) -> None:
    report = await ask(
        {"a.py": "x = 1\n"}, "Use a task to create a new module, then verify it from here"
    )
    assert report.calls == {"task": 1, "read": 1, "bash": 1}
    assert report.text.startswith("✅ `string_utils.py` was created and verified")
    assert '| truncate | `"Hello, World!", 5` | `"Hello..."` | `"Hello..."` | ✅ |' in report.text
    assert (tmp_path / "tree" / "string_utils.py").exists()


async def test_the_same_in_chinese(ask: Ask) -> None:
    report = await ask(
        {"a.py": "x = 1\n"}, "用任务创建一个包含 fibonacci、factorial 函数的新模块,然后在这里验证"
    )
    assert "验证通过" in report.text and "| factorial | `5` | `120` | `120` | ✅ |" in report.text


@node
@pytest.mark.parametrize("manifest", ['{"name": "a"}', '{"name": "a", "type": "module"}'])
async def test_every_function_works_in_javascript(ask: Ask, manifest: str) -> None:
    names = ", ".join(camel(name) for name in RECIPES)
    report = await ask(
        {"package.json": manifest, "index.js": "\n"},
        f"Create a new module with the functions {names}, and verify it",
    )
    assert report.text.startswith("✅ `stringUtils.js`"), report.text
    assert report.text.count("✅") == 1 + sum(len(r.cases) for r in RECIPES.values())


async def test_every_function_works_in_python(ask: Ask) -> None:
    report = await ask(
        {"a.py": "\n"},
        f"Create a new Python module with the functions {', '.join(RECIPES)}, and verify it",
    )
    assert report.text.startswith("✅ `string_utils.py`"), report.text
    assert report.text.count("✅") == 1 + sum(len(r.cases) for r in RECIPES.values())


async def test_an_existing_file_is_never_overwritten(ask: Ask, tmp_path: Path) -> None:
    tree = {
        "string_utils.py": "mine = 1\n",
        "string_utils_2.py": "mine = 2\n",
        ".gitignore": "string_utils_2.py\n",
    }
    report = await ask(tree, "create a new module")
    assert "`string_utils_3.py`" in report.text
    assert [(tmp_path / "tree" / name).read_text() for name in tree] == list(tree.values())


async def test_the_path_asked_for_is_used(ask: Ask, tmp_path: Path) -> None:
    report = await ask(
        {"a.py": "\n"},
        "Create a new module at src/tools/text.py with slugify and word_count, then verify it",
    )
    assert "`src/tools/text.py` was created and verified" in report.text
    assert "def slugify" in (tmp_path / "tree/src/tools/text.py").read_text()


async def test_a_function_nobody_knows_is_left_out_and_named(ask: Ask) -> None:
    report = await ask({"a.py": "\n"}, "Create a module with frobnicate and add")
    assert "No implementation is known for frobnicate; left out." in report.text
    assert "| add | `2, 3` | `5` | `5` | ✅ |" in report.text


async def test_only_unknown_functions_make_no_module(ask: Ask, tmp_path: Path) -> None:
    report = await ask({"a.py": "\n"}, "Create a module with the function frobnicate")
    assert report.reason == "ERROR" and "frobnicate" in report.error
    assert sorted(p.name for p in (tmp_path / "tree").iterdir()) == ["a.py"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("create a new module", []),
        (
            "create a module with the functions capitalize, reverseString and isPalindrome",
            ["capitalize", "reverseString", "isPalindrome"],
        ),
        ("写一个包含 add、subtract 两个函数的模块", ["add", "subtract"]),
        ("Create a function called slugify", ["slugify"]),
        ("create a Python module with a `word_count` function", ["word_count"]),
        (
            "create a utility module that has fibonacci() and frobnicate()",
            ["fibonacci", "frobnicate"],
        ),
        ("create a new file texts.py with capitalize", ["capitalize"]),
    ],
)
def test_finds_the_names_of_the_functions(text: str, names: list[str]) -> None:
    assert function_names(text) == names


def test_a_recipe_is_found_by_its_other_names() -> None:
    assert all(
        recipe(name) is not None for name in ("reverseString", "fib", "count_words", "isPrime")
    )
    assert recipe("frobnicate") is None
