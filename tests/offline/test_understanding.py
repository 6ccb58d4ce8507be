"""What a prompt asks for.

Intents in English, Chinese and a mixture, several at once, and what no rule covers.
"""

from __future__ import annotations

import pytest

from mudroom_offline.requests import find_folders, find_patterns, is_chinese, parse_prompt

PROMPTS = {
    "Use a subtask to find what testing framework this project uses": ["tests!"],
    "Delegate: read all .py files and summarize what each one does": ["summarise!"],
    "Use a task to create a new module, then verify it from here": ["create!"],
    "分析技术栈并总结所有 .py 文件": ["stack", "summarise"],
    "find the testing framework, then count lines of code": ["tests", "count"],
    "how are things tested here?": ["tests"],
    "What testing library do the tests use?": ["tests"],
    "帮我 delegate 一下:总结 all .py files": ["summarise!"],
    "Where is `parse_config` defined and used?": ["find"],
    "查找 Session 的定义": ["find"],
    "Which files use load_settings?": ["find"],
    "Where is the Session class?": ["find"],
    "what dependencies does this project have": ["stack"],
    "分析这个项目的技术栈:依赖、构建工具": ["stack"],
    "what test runner and build tool are used?": ["tests", "stack"],
    "summarise src/**/*.ts": ["summarise"],
    "all markdown files": ["summarise"],
    "总结 tests/ 目录下的所有 .py 文件": ["summarise"],
    "What is this?": ["description"],
    "Which license is it under?": ["licence"],
    "许可证?": ["licence"],
    "Where is load_settings defined in lib?": ["find"],
    "how many Python files are in src": ["count"],
    "What can you do?": ["help"],
    "what do you do?": ["help"],
    "hello, which testing framework does this use?": ["tests"],
    "How many .py and .js files are in src/?": ["count"],
    "create a module with slugify, word_count and truncate": ["create"],
    "what is this project, what are the dependencies?": ["description", "stack"],
    "what is this project and which testing framework does it use?": ["description", "tests"],
    "how many files are in .github/workflows?": ["count"],
    "Read the C# files in src/a and summarize what each one does": ["summarise"],
    "read the .ex files in lib and summarize them": ["summarise"],
    "How many test files are there?": ["count"],
    "Which version of Python does it require?": ["requires"],
    "分析这个项目的技术栈,然后在 README 里补充技术栈说明": ["stack", "save"],
    "Summarise these files:\n- where/is/defined.py\n- create_module.py": ["summarise"],
}
BEYOND = [
    "write me a poem",
    "how do I cook rice?",
    "",
    "What testing framework should I use?",
    "Which testing framework did we use before the migration?",
    "Summarise all files that are not tested",
    "哪些文件没有测试?",
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_understands(prompt: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert [r.kind + "!" * r.delegate for r in requests] == PROMPTS[prompt]
    assert not unsupported


@pytest.mark.parametrize("prompt", BEYOND)
def test_does_not_pretend_to_understand(prompt: str) -> None:
    assert not parse_prompt(prompt)[0]


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
    assert parse_prompt(prompt) == ([], [prompt])


@pytest.mark.parametrize(
    ("prompt", "kinds", "left"),
    [
        (
            "Summarise all .md files and then deploy it to production",
            ["summarise"],
            ["deploy it to production"],
        ),
        (
            "Read the .ex files in lib and summarize them, then delete the unused ones",
            ["summarise"],
            ["delete the unused ones"],
        ),
        ("重构这个模块,先弄清楚测试框架", ["tests"], ["重构这个模块"]),
        (
            "分析这个项目的技术栈,然后在 README 里补充测试框架说明",
            ["stack"],
            ["在 README 里补充测试框架说明"],
        ),
        (
            "Analyse the technology stack, then add a joke to the README",
            ["stack"],
            ["add a joke to the README"],
        ),
        (
            "Find the testing framework, then create a new module with fizzbuzz",
            ["tests"],
            ["create a new module with fizzbuzz"],
        ),
    ],
)
def test_names_the_part_that_is_left_out(prompt: str, kinds: list[str], left: list[str]) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert ([r.kind for r in requests], unsupported) == (kinds, left)


@pytest.mark.parametrize(
    ("prompt", "zh"),
    [("用 subtask 找出 testing framework", True), ("find it", False), ("Read:\n- 文件.py", False)],
)
def test_the_answer_is_in_the_language_of_the_question(prompt: str, zh: bool) -> None:
    assert is_chinese(prompt) is zh


@pytest.mark.parametrize("prompt", ["a" * 10_000_000, "find the tests " * 400_000])
def test_a_prompt_of_many_megabytes_is_refused_at_once(prompt: str) -> None:
    assert not parse_prompt(prompt)[0]


@pytest.mark.parametrize(
    "prompt",
    ["summarise the files in src/a and src/b", "Summarise all .py files, except tests/unit"],
)
def test_a_second_folder_and_an_exception_are_named_as_not_done(prompt: str) -> None:
    assert parse_prompt(prompt)[1]


@pytest.mark.parametrize(
    ("prompt", "folders", "left"),
    [
        ("How many C# files are there under src/A, and how many lines?", ["src/A"], []),
        ("How many tests are under src/a, and how many files?", [], ["tests are", "how many"]),
        ("Who wrote lib/Table.php, and how many lines?", [], ["Who wrote", "how many lines"]),
        ("Count the .py files and summarise them", [None], ["summarise them"]),
        ("Where is parse_it defined in src/, and where is write_it used?", ["src"], ["where is"]),
        ("How many files are in src/a, and which licence is it?", ["src/a"], ["licence is it"]),
        ("How many files are in src/a? What is the licence?", ["src/a", None], []),
        ("Where is parse_it defined? How many lines does it have?", [None], ["does it have"]),
        ("Where is parse_it used? How many lines does the file have?", [None], ["the file"]),
        ("How many files are there here, and what does index.js do?", [None, None], []),
        ("How many files are there, and .js?", [None], [".js"]),
        ("Where is parse_it used? If nowhere, say so.", [None], []),
        ("How many Kotlin files and how many Java files are in src/a?", ["src/a"], ["Kotlin"]),
        ("How many .rs files and how many .md files are in a/B.C?", [None], []),
        ("Where is parse_it defined, and how many files are in src?", ["src"], ["parse_it"]),
        ("Where is parse_it defined and where is it used?", [None], []),
        ("Where is parse_it defined, and which files call it?", [None], []),
        ("Where is parse_it defined in src/, and where is it used?", ["src"], ["is it used"]),
        ("Where is parse_it defined and who wrote it?", [None], ["who wrote it"]),
        ("Who wrote src/a/, and how many files are in the project?", [None], ["Who wrote src/a/"]),
    ],
)
def test_a_half_without_a_place_has_the_place_of_the_half_before_it_or_is_not_done(
    prompt: str, folders: list[str | None], left: list[str]
) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert [request.folder for request in requests] == folders
    assert len(unsupported) == len(left)
    assert all(part in text for part, text in zip(left, unsupported, strict=True))


@pytest.mark.parametrize(
    "prompt",
    [
        "summarise the files in .github/workflows",
        "how many files are in .github/workflows?",
    ],
)
def test_a_folder_with_a_dot_is_no_kind_of_file(prompt: str) -> None:
    assert find_folders(prompt)[0].startswith(".github") and not find_patterns(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "summarise the source files",
        "what does the source do?",
        "how many lines of Python code are in source?",
        "which testing framework is used in the source?",
    ],
)
def test_ordinary_words_are_no_folder_and_no_kind_of_file(prompt: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert requests == [] and unsupported
    assert find_folders(prompt) == []


@pytest.mark.parametrize(
    "prompt",
    [
        "which files use this",
        "find files like src/a.py",
        "what does each function do?",
        "list installed packages",
        "python 装的是哪个版本",
        "how many files do we use?",
        "list the main functions",
        "show the largest file we use",
        "有多少文件用到它",
    ],
)
def test_a_condition_in_common_words_is_not_ignored(prompt: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert requests == [] and unsupported


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("summarise what each file is used for", "summarise"),
        ("list all files using a subtask", "list"),
        ("I need to know how many files there are", "count"),
        ("how many lines of code does this project use?", "count"),
    ],
)
def test_the_same_words_without_a_condition_are_read(prompt: str, kind: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert [x.kind for x in requests] == [kind] and not unsupported


@pytest.mark.parametrize(
    ("prompt", "kind", "rest"),
    [
        ("Which test framework is used and what is its licence?", "tests", "what is its licence"),
        ("What is the tech stack and how do I install it?", "stack", "how do I install it"),
        ("which testing framework is used and how do I run it?", "tests", "how do I run it"),
        ("list every package and its version", "stack", "its version"),
        ("技术栈是什么，它的许可证是什么", "stack", "它的许可证是什么"),
    ],
)
def test_what_belongs_to_a_tool_is_not_told_of_the_project(
    prompt: str, kind: str, rest: str
) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert [x.kind for x in requests] == [kind]
    assert [x.rstrip("?") for x in unsupported] == [rest]


@pytest.mark.parametrize("place", ["project", "repository", "codebase"])
def test_the_folder_of_the_project_is_the_folder_of_the_session(place: str) -> None:
    requests, unsupported = parse_prompt(f"how many files are in the {place} folder?")
    assert [request.folder for request in requests] == [None] and not unsupported


@pytest.mark.parametrize(
    "prompt",
    [
        "hey, can you tell me what this is used for?",
        "help me find which files use this",
        "这个项目有什么功能？",
    ],
)
def test_a_question_beside_a_greeting_is_no_greeting(prompt: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert requests == [] and unsupported


@pytest.mark.parametrize(
    "prompt",
    [
        "hello",
        "Hi there!",
        "hey mudroom",
        "thanks for your help",
        "你好！",
    ],
)
def test_a_greeting_is_a_greeting(prompt: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert [request.kind for request in requests] == ["help"] and not unsupported
