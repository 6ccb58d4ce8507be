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
    "Summarise lib/tea/adapter": ["summarise"],
    "all markdown files": ["summarise"],
    "总结 tests/ 目录下的所有 .py 文件": ["summarise"],
    "what does this project do?": ["description"],
    "What is this?": ["description"],
    "这个项目是做什么的?": ["description"],
    "这是什么项目?": ["description"],
    "How do I run the tests?": ["run_tests"],
    "怎么运行测试?": ["run_tests"],
    "What is the licence of this project?": ["licence"],
    "Which license is it under?": ["licence"],
    "许可证?": ["licence"],
    "Where is load_settings defined in lib?": ["find"],
    "how many Python files are in src": ["count"],
    "hello": ["help"],
    "你好": ["help"],
    "What can you do?": ["help"],
    "what can you do": ["help"],
    "what do you do?": ["help"],
    "What do you do": ["help"],
    "你能做什么?": ["help"],
    "hello, which testing framework does this use?": ["tests"],
    "How many .py and .js files are in src/?": ["count"],
    "create a module with slugify, word_count and truncate": ["create"],
    "写一个包含 slugify、truncate 函数的模块,并验证": ["create"],
    "what is this project and how do I run its tests?": ["description", "run_tests"],
    "what is this project, what are the dependencies?": ["description", "stack"],
    "what is this project and which testing framework does it use?": ["description", "tests"],
    "how many files are in .github/workflows?": ["count"],
    "Read the C# files in src/a and summarize what each one does": ["summarise"],
    "read the .ex files in lib and summarize them": ["summarise"],
    "where is populate defined?": ["find"],
    "How many test files are there?": ["count"],
    "list all files": ["list"],
    "Which version of Python does it require?": ["requires"],
    "分析这个项目的技术栈,然后在 README 里补充技术栈说明": ["stack", "save"],
    "Analyse the technology stack, then add it to the README": ["stack", "save"],
    "Summarise these files:\n- where/is/defined.py\n- create_module.py": ["summarise"],
}
BEYOND = [
    "write me a poem",
    "how do I cook rice?",
    "",
    "Tell me a joke about cats",
    "What testing framework should I use?",
    "Which testing framework did we use before the migration?",
    "Explain how load_settings works",
    "Summarise all files that are not tested",
    "应该用什么测试框架?",
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
    ("prompt", "folders"),
    [
        (
            "Summarize each .py file in src/app/_engine and src/app/_core",
            ["src/app/_engine", "src/app/_core"],
        ),
        ("read all .py files in `src/a`, src/b/c", ["src/a", "src/b/c"]),
        ("总结在 src/app/_core 下的所有 .py 文件", ["src/app/_core"]),
        ("Where is read/write used and/or defined in package.json?", []),
        ("Summarize what src/app.py does", []),
        ("Summarize every Python file under src/app.", ["src/app"]),
        ("Summarise the docs folder", ["docs"]),
    ],
)
def test_folders_are_understood_without_a_slash_at_their_end(
    prompt: str, folders: list[str]
) -> None:
    assert find_folders(prompt) == folders
    assert not folders or not parse_prompt(prompt)[1] or len(folders) > 1


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
        ("How many tests are in lib, and how many .py files?", [], ["tests are", "how many"]),
        ("Who wrote lib/Table.php, and how many lines?", [], ["Who wrote", "how many lines"]),
        ("Who wrote the .py files, and how many lines?", [], ["Who wrote", "how many lines"]),
        ("Count the .py files and summarise them", [None], ["summarise them"]),
        ("How many files are in src, and where is parse_it defined?", ["src"], ["where is"]),
        ("Where is parse_it defined in src/, and where is write_it used?", ["src"], ["where is"]),
        ("How many files are in src/a, and which licence is it?", ["src/a"], ["licence is it"]),
        ("How many files are in src/a? What is the licence?", ["src/a", None], []),
        ("Where is parse_it defined? How many lines does it have?", [None], ["does it have"]),
        ("TypeAdapters 这个类在哪里定义？它有多少行？", [None], ["它有多少行"]),
        ("Where is parse_it used? How many lines does the file have?", [None], ["the file"]),
        ("What does a.py do? How many lines do they have?", [None], ["do they have"]),
        ("How many files are there here, and what does index.js do?", [None, None], []),
        ("How many files are there, and .js?", [None], [".js"]),
        ("Where is parse_it used? If nowhere, say so.", [None], []),
        ("How many Kotlin files and how many Java files are in src/a?", ["src/a"], ["Kotlin"]),
        ("How many .rs files and how many .md files are in docs?", ["docs"], [".rs"]),
        ("How many .rs files and how many .md files are in a/B.C?", [None], []),
        ("Where is parse_it defined, and how many files are in src?", ["src"], ["parse_it"]),
        ("Where is a.B used, and how many files are in src?", ["src"], ["a.B"]),
        ("Where is parse_it defined and where is it used?", [None], []),
        ("Where is parse_it defined, and which files call it?", [None], []),
        ("parse_it 在哪里定义？哪些文件调用它？", [None], []),
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
        "summarise all files in .github",
    ],
)
def test_a_folder_with_a_dot_is_no_kind_of_file(prompt: str) -> None:
    assert find_folders(prompt)[0].startswith(".github") and not find_patterns(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "summarise the source files",
        "what does the source do?",
        "how many lines are in code files?",
        "how many lines of Python code are in source?",
        "which testing framework is used in the source?",
        "how many source files are there?",
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
        "what class is the main one?",
        "list installed packages",
        "python 装的是哪个版本",
        "装了哪些依赖",
        "how many files do we use?",
        "how many files are needed?",
        "list the main functions",
        "which classes are used?",
        "show the largest file we use",
        "有多少文件用到它",
        "哪些文件是主要的",
        "列出需要的文件",
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


def test_lines_of_tests_are_those_of_test_files() -> None:
    assert "**/test_*.py" in find_patterns("how many lines of tests")


@pytest.mark.parametrize("place", ["project", "repository", "codebase"])
def test_the_folder_of_the_project_is_the_folder_of_the_session(place: str) -> None:
    requests, unsupported = parse_prompt(f"how many files are in the {place} folder?")
    assert [request.folder for request in requests] == [None] and not unsupported


@pytest.mark.parametrize(
    "prompt",
    [
        "hey, can you tell me what this is used for?",
        "hey can you help me use this?",
        "help me find which files use this",
        "hello, which folder is used?",
        "这个项目有什么功能？",
        "这个项目怎么用？",
    ],
)
def test_a_question_beside_a_greeting_is_no_greeting(prompt: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert requests == [] and unsupported


@pytest.mark.parametrize("start", ["", "hey, ", "hey ", "Hello! "])
def test_what_this_project_is_asks_for_its_description(start: str) -> None:
    requests, unsupported = parse_prompt(f"{start}can you tell me what this project is?")
    assert [request.kind for request in requests] == ["description"] and not unsupported


@pytest.mark.parametrize(
    "prompt",
    [
        "hello",
        "Hi there!",
        "hey mudroom",
        "help",
        "Help me please",
        "thanks for your help",
        "你好！",
        "谢谢",
    ],
)
def test_a_greeting_is_a_greeting(prompt: str) -> None:
    requests, unsupported = parse_prompt(prompt)
    assert [request.kind for request in requests] == ["help"] and not unsupported
