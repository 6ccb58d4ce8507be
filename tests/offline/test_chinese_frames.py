"""Requests as Chinese readers phrase them: every verb, object, frame and punctuation mark together.

The tables below are the words of ordinary requests. Each combination must be understood whole, and
each one that says more than the model can do must be refused whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, cycle, product
from pathlib import Path

import pytest
from tests.offline.conftest import Ask

from mudroom_offline.requests import match_writing_form, parse_prompt

LOOK = ["找出", "查一下", "查一查", "查查", "看看", "看一下", "查看", "弄清楚", "分析一下"]
CHILD = [
    "",
    "用子任务",
    "用子任务来",
    "通过子任务",
    "派一个子任务",
    "派个子智能体",
    "让一个子任务",
    "启动一个子任务",
    "开一个子任务去",
    "委派：",
    "交给子任务：",
    "用子任务，",
]
ENDS = ["", "。", "？", "?", "！"]
POLITE = ["", "请", "帮我", "请帮我", "麻烦你"]

QUESTIONS = {
    "tests": [
        "这个项目用什么测试框架",
        "这个项目用的是什么测试框架",
        "项目里用了哪些测试工具",
        "测试框架",
    ],
    "stack": ["这个项目的技术栈", "本项目有哪些依赖"],
    "licence": ["这个项目采用什么许可证"],
    "run_tests": ["怎么运行测试", "这个项目如何跑测试"],
    "description": ["这个项目是做什么的"],
}
FILES = ["所有 .py 文件", "所有.py文件", "全部 Python 文件", "src/ 目录下的所有 .py 文件"]
READ = [
    "读取{}",
    "读一下{}",
    "读一遍{}",
    "看看{}",
    "把{}读一遍",
    "把{}都读一遍",
    "把{}过一遍",
]
TELL = [
    "总结每个文件的作用",
    "概括每个文件的作用",
    "概括一下每个文件是做什么的",
    "说说每个文件是做什么的",
]
MARKS = [",", "，", "；", "、再", "，再", "，然后"]
JOINED = (CHILD, READ, ["并总结每个文件做什么", "然后概括每个文件的内容"], ["", "，"])

WRITERS = [
    "",
    "用任务",
    "用一个任务",
    "用子任务",
    "通过子任务来",
    "委派：",
    "派一个子任务",
    "让子智能体",
]
WRITE = ["新建一个模块", "新建个模块", "创建一个新模块", "新建一个 Python 模块", "写一个新模块"]
VERIFY = ["然后", "再", "，再", "，然后", ",接着", "，并且"]
HERE = ["在这里验证", "从这里验证", "从这里验证一下", "从这边检查一下", "在这里验证它", "验证"]

TRADITIONAL = {
    "用一個子任務查一下這個專案用什麼測試框架": ["tests!"],
    "派一個子任務去看看這個專案用什麼測試框架？": ["tests!"],
    "請把所有 .py 檔案都讀一遍，概括每個檔案的作用": ["summarise"],
    "讀取所有 .py 檔案並總結每個檔案的作用": ["summarise"],
    "使用任務新建一個模組，再從這裡驗證": ["create!"],
    "使用任務新建一個模塊，然後在這裏驗證": ["create!"],
    "分析這個專案的技術棧": ["stack"],
    "這個專案有哪些相依套件？": ["stack"],
    "這個專案是做什麼的？": ["description"],
    "怎麼執行測試？": ["run_tests"],
    "這個專案採用什麼授權條款？": ["licence"],
    "統計 .py 檔案的行數": ["count"],
    "`parse_config` 在哪裡定義？": ["find"],
}

BEYOND = [
    "应该用什么测试框架",
    "查一下哪些文件没有测试",
    "看看测试为什么失败",
    "查一下上个月用什么测试框架",
    "把所有 .py 文件都删掉",
    "把所有 .py 文件翻译成英文",
    "把所有 .py 文件读一遍，把没用的删掉",
    "概括一下最近的提交",
    "派一个子任务去修复测试",
    "派一个子任务去网上查一下天气",
    "让子任务重构这个项目",
    "看看除了 a.py 以外的所有 .py 文件",
    "不要看测试框架",
    "别查这个项目用什么测试框架",
    "如果有测试框架就总结所有 .py 文件",
    "把这个项目换成 pytest 测试框架",
    "把测试框架升级一下",
    "从 main 分支看看用什么测试框架",
    "查一下我该用什么测试框架",
    "查",
    "看看",
    "派一个子任务",
    "求和",
    "把它",
]
NOT_TO_WRITE = [
    "不要新建模块，再从这里验证",
    "新建一个模块，再从这里删除",
    "新建一个模块，再从别处验证",
    "从这里验证，再新建一个模块",
    "派一个子任务看看怎么新建一个模块",
    "看看新建一个模块要多久",
    "让我新建一个模块",
    "查一下谁会新建一个模块",
    "概括新建一个模块的步骤",
    "派一个子任务新建一个模块吗",
    "使用任务新建一个模块，再从这里验证？",
]


def list_kinds(prompt: str) -> tuple[list[str], list[str]]:
    """Return the kinds that a prompt asks for, with "!" for children, and what is left out."""
    requests, left = parse_prompt(prompt)
    return [request.kind + "!" * request.delegate for request in requests], left


def find_wrong(prompts: dict[str, str]) -> list[tuple[str, object]]:
    """Return the prompts of which another kind, or not all, is understood."""
    seen = ((prompt, list_kinds(prompt), kind) for prompt, kind in prompts.items())
    return [(prompt, result) for prompt, result, kind in seen if result != ([kind], [])]


def meet(*axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield rows in which each value of an axis meets each value of each other axis."""
    turns = [cycle(axis) for axis in axes]
    for first, second in combinations(range(len(axes)), 2):
        for values in product(axes[first], axes[second]):
            row = [next(turn) for turn in turns]
            row[first], row[second] = values
            yield tuple(row)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_every_question_is_understood_with_every_verb_and_every_child(kind: str) -> None:
    prompts = {
        polite + child + verb + question: kind + "!" * bool(child)
        for question, polite, child, verb in meet(QUESTIONS[kind], POLITE, CHILD, ["", *LOOK])
    }
    assert find_wrong(prompts) == []


@pytest.mark.parametrize("kind", QUESTIONS)
def test_the_mark_at_the_end_changes_nothing(kind: str) -> None:
    prompts = {
        f"用一个子任务{space}{verb}{space}{question}{end}": f"{kind}!"
        for question, verb, end, space in meet(QUESTIONS[kind], LOOK, ENDS, ["", " "])
    }
    assert find_wrong(prompts) == []


@pytest.mark.parametrize("files", FILES)
def test_files_are_read_and_summarised_in_every_frame(files: str) -> None:
    prompts = {
        f"{child}{read.format(files)}{mark}{tell}": "summarise" + "!" * bool(child)
        for child, read, tell, mark in (*meet(CHILD, READ, TELL, MARKS), *meet(*JOINED))
    }
    assert find_wrong(prompts) == []


def test_a_module_is_created_and_verified_in_every_frame() -> None:
    prompts = {
        f"{child}{write}{mark}{verify}{end}": "create" + "!" * bool(child)
        for child, write, mark, verify, end in meet(WRITERS, WRITE, VERIFY, HERE, ["", "。"])
    }
    assert find_wrong(prompts) == []


@pytest.mark.parametrize("prompt", TRADITIONAL)
def test_traditional_characters_are_read(prompt: str) -> None:
    assert list_kinds(prompt) == (TRADITIONAL[prompt], [])


def test_a_name_in_traditional_characters_stays_as_it_is_written() -> None:
    (request,), left = parse_prompt("總結 `專案/測試.py` 這個檔案的作用")
    assert "專案/測試.py" in request.text and not left


@pytest.mark.parametrize("child", ["", "用一个子任务", "请"])
@pytest.mark.parametrize("prompt", BEYOND)
def test_what_no_rule_covers_is_refused(prompt: str, child: str) -> None:
    requests, left = parse_prompt(child + prompt)
    assert left or not requests, requests


@pytest.mark.parametrize("prompt", NOT_TO_WRITE)
def test_nothing_is_written_for_other_sentences_with_these_words(prompt: str) -> None:
    assert match_writing_form(prompt) == ("", {})


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("写一首求和的诗", "“写一首求和的诗”"),
        ("这个项目有哪些漏洞？", "“这个项目有哪些漏洞”"),
        ("分析技术选型的优劣", "“分析技术选型的优劣”"),
    ],
)
async def test_the_whole_phrase_is_named_and_no_piece_of_a_word(
    ask: Ask, prompt: str, named: str
) -> None:
    report = await ask({"a.py": "x = 1\n"}, prompt)
    assert not report.ok and named in report.error


async def test_the_three_tasks_of_the_lesson_work(ask: Ask, tmp_path: Path) -> None:
    tree = {f"src/m{n}.py": f'"""第 {n} 个模块。"""\n' for n in range(6)}
    tree["tests/test_a.py"] = "import pytest\n"
    report = await ask(tree, "用一个子任务查一下这个项目用什么测试框架")
    assert report.ok and "**pytest**" in report.text and report.calls == {"task": 1}
    report = await ask(tree, "把所有 .py 文件都读一遍，概括每个文件的作用")
    assert report.ok and "第 3 个模块" in report.text and report.calls["task"] == 2
    report = await ask(tree, "使用任务新建一个模块，再从这里验证")
    assert "string_utils.py" in report.text and (tmp_path / "tree/string_utils.py").exists()
