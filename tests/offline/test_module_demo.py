"""The writing demo.

A child writes the module, the parent reads and runs it; nothing is overwritten.
"""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path

import pytest
from tests.offline.conftest import Ask

from mudroom_offline.requests import match_writing_form, parse_prompt

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


@pytest.mark.parametrize("prompt", ["create a new module", "create a new module at mine.py"])
async def test_an_existing_file_is_never_overwritten(ask: Ask, tmp_path: Path, prompt: str) -> None:
    tree = {
        "string_utils.py": "mine = 1\n",
        "mine.py": "mine = 2\n",
        ".gitignore": "string_utils.py\n",
    }
    report = await ask(tree, prompt)
    assert not report.ok and "exists already" in report.error
    assert [(tmp_path / "tree" / name).read_text() for name in tree] == list(tree.values())
    assert len(list((tmp_path / "tree").iterdir())) == 3


async def test_the_path_in_the_request_is_used(ask: Ask, tmp_path: Path) -> None:
    report = await ask(
        TREE, "Create a new module at src/tools/text.py with slugify and word_count, then verify it"
    )
    assert "`src/tools/text.py` was created and verified" in report.text
    assert "def slugify" in (tmp_path / "tree/src/tools/text.py").read_text()


NOT_ASKED_TEXT = """
Create a module with frobnicate and slugify
create a new module with a function called fizzbuzz
create a new module that computes the median of a list
Create a Ruby module with slugify
Create a new module at a.rb
write module tests
Create a new module that parses CSV files
Create a new module but leave existing files as they are, and delete a.py
If the tests fail, create a new module
When I create a new module, verify it
Create a new module?
Can you create a new module for me, or is that too much?
Do not create a new module
Create no new module
How would you create a new module?
Why does the build create a file with functions?
What would it take to implement a library for parsing dates?
Review the code and make a list of functions
add a function multiply to src/adder.py
add slugify to a.py
Create a new module in the style of a.py
create src/foo.py
write a README
create a new module, then run the tests
explain: create a new module
创建一个名为 foo 的类
Write a script
"create a new module" is a phrase from the docs
I may create a new module tomorrow
Tell me about the prompt create a new module, then verify it from here
Do not create any module, just tell me the testing framework
Create a new module, and fix the bug in a.py
Summarise all .py files and never write a new module
不要创建文件,只告诉我测试框架
如何新建一个模块?
别写新模块
写一个包含 add、subtract 函数的 Ruby 模块
我想知道创建一个新模块的步骤
说明如何向 a.py 添加函数
~~Create a new module~~
"""
NOT_ASKED = [
    *NOT_ASKED_TEXT.strip().split("\n"),
    "Create a new module? ",
    "create a new module\n- a.py",
]


@pytest.mark.parametrize("prompt", NOT_ASKED)
async def test_nothing_is_written_for(ask: Ask, tmp_path: Path, prompt: str) -> None:
    report = await ask(TREE, prompt)
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == ["a.py"]
    assert not re.search(r"(?i)\bcreated\b|已创建", report.text)
    assert report.ok is bool(re.search(r"the testing framework|Summarise|告诉我", prompt))


BESIDE_A_QUESTION = [
    "Create a new module? Which testing framework does this project use?",
    "What is this project? ~~Create a new module.~~",
    "What is this project?\n> create a new module, then verify it from here",
    "How do I run the tests? `create a new module` ",
    "这个项目是做什么的？『创建一个新模块，然后在这里验证』",
    "Find the testing framework, then create a new module",
]


@pytest.mark.parametrize("prompt", BESIDE_A_QUESTION)
async def test_beside_a_question_nothing_is_written(ask: Ask, tmp_path: Path, prompt: str) -> None:
    report = await ask(TREE, prompt)
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == ["a.py"]
    assert not report.ok and re.search(r"⚠ Not done.*reate a new|⚠ 未完成.*创建一个", report.text)


FORMS = [
    "Use a task to create a new module, then verify it from here",
    "create a new module",
    "Please create a new Python module with the functions slugify and word_count, and verify it.",
    "create a module at src/text_tools.py, then check it",
    "Delegate: create a new module, then verify it from here",
    "用任务创建一个新模块，然后在这里验证",
    "请创建一个新模块。",
    "在 src/text_tools.py 创建一个新模块",
    "写一个包含 slugify、truncate 函数的模块,并验证",
    "用子任务创建一个新的 Python 模块 a.py,包含 slugify 和 word_count,然后在这里验证它",
]
CHARACTERS = [
    *"?？¿!！;；:：'\"`´‘’“”«»‹›「」『』《》〈〉【】()（）[]{}<>~#*+=|\\^%$&@…—–•·、￥\t\n\r\v\f",
    *"\0\u00a0\u200b\u2028\u3000\ufeff\ud800\u017f\u212aéα🙂",
]
WORDS_TEXT = """
not never don't no without if unless when whether should could would can may might how why what
which where who explain describe translate review example says said quote imagine suppose tomorrow
later yesterday instead or but maybe perhaps delete README tests fizzbuzz Slugify class Ruby
don’t I you we he 不 不要 别 勿 如果 假如 怎么 如何 为什么 是否 吗 能否
例如 翻译 解释 删除 明天 我 说 或
"""
WORDS = WORDS_TEXT.split()
EXTRAS = [*CHARACTERS, *(f" {word} " for word in WORDS)]


def test_the_forms_of_an_instruction_are_understood() -> None:
    for form in FORMS:
        for prompt in (form, f" {form}  ", form.upper() if form == FORMS[1] else form):
            assert [request.kind for request in parse_prompt(prompt)[0]] == ["create"], prompt


@pytest.mark.parametrize("form", FORMS)
def test_one_more_character_or_word_anywhere_is_no_instruction(form: str) -> None:
    changed = [
        f"{form[:at]}{extra}{form[at:]}"
        for at in range(len(form) + 1)
        for extra in EXTRAS[at % 4 :: 4]
    ]
    changed += [f"{form}{mark}{form}" for mark in ("", " ", ". ", "\n", ", then ", "。")]
    changed += [f"{word}{mark}{form}" for word in WORDS for mark in (": ", ", ", ". ", "\n", "，")]
    assert [prompt for prompt in changed if match_writing_form(prompt)[0]] == []


def test_only_an_instruction_is_a_request_to_write() -> None:
    for form, extra in zip(cycle(FORMS), (*CHARACTERS, *WORDS) * 2):
        for prompt in (f"{form} {extra}", f"{extra} {form}", f"What is this?{extra} {form}"):
            requests, _ = parse_prompt(prompt)
            assert all(request.kind != "create" for request in requests), prompt


@pytest.mark.parametrize(
    ("prompt", "word"),
    [
        ("create a new module with a function named fizzbuzz", "“fizzbuzz”"),
        ("写一个包含 add、slugify 函数的模块", "“add”"),
    ],
)
async def test_the_word_that_is_not_understood_is_named(ask: Ask, prompt: str, word: str) -> None:
    assert word in (await ask(TREE, prompt)).error
