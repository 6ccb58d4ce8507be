"""What a prompt asks for.

Intents in English, Chinese and a mixture, several at once, and what no rule covers.
"""

from __future__ import annotations

import pytest

from mudroom_offline.requests import find_exclusions, find_scopes, is_chinese, parse_requests

PROMPTS = {
    "Use a subtask to find what testing framework this project uses": ["tests!"],
    "Delegate: read all .py files and summarize what each one does": ["summarise!"],
    "Use a task to create a new module, then verify it from here": ["create!"],
    "用子任务找出这个项目用的测试框架是什么": ["tests!"],
    "委派:读取所有 .py 文件并总结每个文件的作用": ["summarise!"],
    "用任务创建一个新模块,然后在这里验证": ["create!"],
    "分析技术栈并总结所有 .py 文件": ["stack", "summarise"],
    "find the testing framework, then count lines of code": ["tests", "count"],
    "这个项目用什么测试?": ["tests"],
    "how are things tested here?": ["tests"],
    "What testing library do the tests use?": ["tests"],
    "帮我 delegate 一下:总结 all .py files": ["summarise!"],
    "Where is `parse_config` defined and used?": ["find"],
    "parse_config 在哪里定义?": ["find"],
    "查找 Session 的定义": ["find"],
    "Which files use load_settings?": ["find"],
    "Where is the Session class?": ["find"],
    "how many Python files are there?": ["count"],
    "统计各类文件的行数": ["count"],
    "what dependencies does this project have": ["stack"],
    "这个项目用了哪些库?": ["stack"],
    "分析这个项目的技术栈:依赖、构建工具": ["stack"],
    "what test runner and build tool are used?": ["tests", "stack"],
    "summarise src/**/*.ts": ["summarise"],
    "all markdown files": ["summarise"],
    "总结 tests/ 目录下的所有 .py 文件": ["summarise"],
    "what does this project do?": ["summarise"],
    "create a module with slugify, word_count and is_prime": ["create"],
    "写一个包含 add、subtract 函数的 JavaScript 模块,并验证": ["create"],
    "Summarise these files:\n- where/is/defined.py\n- create_module.py": ["summarise"],
}
BEYOND = [
    "hello",
    "你好",
    "write me a poem",
    "how do I cook rice?",
    "what can you do?",
    "",
    "谢谢",
    "Tell me a joke about cats",
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_understands(prompt: str) -> None:
    requests, foreign = parse_requests(prompt)
    assert [r.kind + "!" * r.delegate for r in requests] == PROMPTS[prompt]
    assert not foreign


@pytest.mark.parametrize("prompt", BEYOND)
def test_does_not_pretend_to_understand(prompt: str) -> None:
    assert parse_requests(prompt) == ([], [])


@pytest.mark.parametrize(
    "prompt",
    [
        "fix the bug in the testing framework",
        "Run the tests",
        "修复测试框架的问题",
        "please delete all .py files",
    ],
)
def test_knows_work_that_no_rule_does(prompt: str) -> None:
    assert parse_requests(prompt) == ([], [prompt])


def test_names_the_part_that_is_left_out() -> None:
    requests, foreign = parse_requests("Summarise all .md files and then deploy it to production")
    assert [r.kind for r in requests] == ["summarise"] and foreign == ["deploy it to production"]


@pytest.mark.parametrize(
    ("prompt", "zh"),
    [("用 subtask 找出 testing framework", True), ("find it", False), ("Read:\n- 文件.py", False)],
)
def test_the_answer_is_in_the_language_of_the_question(prompt: str, zh: bool) -> None:
    assert is_chinese(prompt) is zh


@pytest.mark.parametrize("prompt", ["a" * 10_000_000, "find the tests " * 400_000])
def test_a_prompt_of_many_megabytes_is_refused_at_once(prompt: str) -> None:
    assert parse_requests(prompt) == ([], [])


@pytest.mark.parametrize(
    ("prompt", "folders"),
    [
        (
            "Summarize each .py file in src/app/_engine and src/app/_core",
            ["src/app/_engine/", "src/app/_core/"],
        ),
        ("read all .py files in `src/a`, src/b/c", ["src/a/", "src/b/c/"]),
        ("总结在 src/app/_core 下的所有 .py 文件", ["src/app/_core/"]),
        ("Where is read/write used and/or defined in package.json?", []),
        ("Summarize what src/app.py does", []),
    ],
)
def test_folders_are_understood_without_a_slash_at_their_end(
    prompt: str, folders: list[str]
) -> None:
    assert find_scopes(prompt) == folders


def test_folders_to_leave_out_too() -> None:
    assert find_exclusions("count the lines, except tests/unit") == ["tests/unit/"]
