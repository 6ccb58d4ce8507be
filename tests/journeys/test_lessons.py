"""The first three things to try, in two languages, offline, in projects of three kinds."""

import json
from pathlib import Path

import pytest

from .conftest import Mudroom

PYTHON = {
    "pyproject.toml": (
        '[project]\nname = "kettle"\n\n[project.optional-dependencies]\ntest = ["pytest>=8"]\n'
    ),
    "kettle/__init__.py": '"""Boil water."""\n',
    "kettle/heat.py": (
        '"""Turn watts into degrees."""\n\n\n'
        "def rise(watts, seconds):\n    return watts * seconds / 4186\n"
    ),
    "tests/test_heat.py": (
        "import pytest\nfrom kettle.heat import rise\n\n\n"
        "def test_rise():\n    assert rise(4186, 1) == 1\n"
    ),
}
JAVASCRIPT = {
    "package.json": json.dumps(
        {
            "name": "teapot",
            "scripts": {"test": "vitest run"},
            "devDependencies": {"vitest": "^2.1.0"},
        }
    ),
    "src/pour.js": (
        "// Pours tea into cups.\n"
        "export function pour(cups) {\n  return cups.map(() => 'tea');\n}\n"
    ),
    "src/pour.test.js": (
        "import { test } from 'vitest';\nimport { pour } from './pour.js';\n\n"
        "test('pours', () => pour([1]));\n"
    ),
}
RUST = {
    "Cargo.toml": '[package]\nname = "saucer"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": (
        "//! Holds a cup.\n\n/// Holds it.\n"
        "pub fn hold(cups: u32) -> u32 {\n    cups\n}\n\n"
        "#[cfg(test)]\nmod tests {\n    #[test]\n"
        "    fn holds() {\n        assert_eq!(super::hold(1), 1);\n    }\n}\n"
    ),
}
TREES = {
    "python": (PYTHON, "pytest", "heat.py"),
    "javascript": (JAVASCRIPT, "Vitest", "pour.js"),
    "rust": (RUST, "cargo test", "lib.rs"),
}
SUFFIX = {"python": "py", "javascript": "js", "rust": "rs"}

each_tree = pytest.mark.parametrize("kind", TREES)


def make_project(kind: str, folder: Path) -> Path:
    """Write a project of this kind."""
    for name, text in TREES[kind][0].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@each_tree
@pytest.mark.parametrize(
    "prompt",
    [
        "Use a subtask to find what testing framework this project uses",
        "用子任务找出这个项目使用什么测试框架",
    ],
)
async def test_a_child_finds_the_testing_framework(
    mudroom: Mudroom, tmp_path: Path, kind: str, prompt: str
) -> None:
    folder, framework = make_project(kind, tmp_path / "tree"), TREES[kind][1]
    done = await mudroom("-p", prompt, "-m", "offline", "-C", str(folder), "-o", "json")
    result = json.loads(done.out)
    assert done.code == 0 and framework.lower() in result["result"].lower(), result["result"]
    assert result["ledger"]["children"] == 1 and result["reports"][0]["files_read"], (
        "a child read a file"
    )


@each_tree
@pytest.mark.parametrize(
    "prompt",
    [
        "Delegate: read all .{} files and summarize what each one does",
        "用子任务读取所有 .{} 文件,并总结每个文件的作用",
    ],
)
async def test_children_summarize_each_file(
    mudroom: Mudroom, tmp_path: Path, kind: str, prompt: str
) -> None:
    folder = make_project(kind, tmp_path / "tree")
    done = await mudroom(
        "-p", prompt.format(SUFFIX[kind]), "-m", "offline", "-C", str(folder), "-o", "json"
    )
    result = json.loads(done.out)
    sources = [name for name in TREES[kind][0] if name.endswith(SUFFIX[kind])]
    assert done.code == 0 and all(Path(name).name in result["result"] for name in sources), result[
        "result"
    ]
    read = {name for report in result["reports"] for name in report["files_read"]}
    assert read >= set(sources), "children read all files"


@each_tree
@pytest.mark.parametrize(
    "prompt",
    [
        "Use a task to create a new Python module tools/words.py with slugify and word_count,"
        " then verify it from here",
        "用子任务创建一个新的 Python 模块 tools/words.py,"
        "包含 slugify 和 word_count,然后在这里验证它",
    ],
)
async def test_a_child_writes_a_module_and_the_parent_verifies_it(
    mudroom: Mudroom, tmp_path: Path, kind: str, prompt: str
) -> None:
    folder = make_project(kind, tmp_path / "tree")
    done = await mudroom(
        "-p",
        prompt,
        "-m",
        "offline",
        "-C",
        str(folder),
        "-o",
        "json",
        "--permission-mode",
        "bypassPermissions",
    )
    result = json.loads(done.out)
    made = folder / "tools" / "words.py"
    assert (
        done.code == 0
        and "def slugify" in made.read_text()
        and "def word_count" in made.read_text()
    ), result["result"]
    (child,) = result["reports"]
    assert child["files_changed"] == ["tools/words.py"], "the child wrote it"
    assert result["report"]["calls"].get("bash") or result["report"]["calls"].get("read"), (
        "the parent verified it itself"
    )
