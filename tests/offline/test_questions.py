"""The other questions, compound ones, bigger trees, and what happens when there is no answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.models.wires import make_tool
from tests.offline.conftest import Ask

from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig
from mudroom._engine.compaction.summary import make_summary_prompt
from mudroom._session.session import Session
from mudroom.errors import ModelRefused
from mudroom_offline import OfflineModel
from mudroom_offline.catalog import load_data
from mudroom_offline.requests import parse_prompt

CODE = {
    "src/a.py": "def load_settings(path):\n    return path\n",
    "src/b.py": "from a import load_settings\n\nprint(load_settings('x'))\n",
    "lib/c.js": "export function parseConfig() {}\n",
    "README.md": "# Title\n\nUses load_settings.\n",
}


async def test_finds_where_something_is_defined_and_used(ask: Ask) -> None:
    report = await ask(CODE, "Where is load_settings defined and used?")
    assert report.text.startswith(
        "`load_settings` as a whole word is in 4 lines of 3 files in this folder."
    )
    assert "may have more:\n\n```text\nsrc/a.py:1:def load_settings(path):\n```" in report.text
    assert "Other lines:\n\n```text\nsrc/b.py:1:" in report.text
    assert "\nsrc/b.py:3:print(load_settings('x'))\n" in report.text
    assert report.calls == {"grep": 1}


async def test_tells_a_conversation_in_short() -> None:
    chat = OfflineModel().start_conversation(RequestConfig(system=""))
    for message in (
        user_message("a first prompt"),
        AssistantMessage((TextBlock("one"),)),
        user_message("refused"),
        user_message(make_summary_prompt("names")),
    ):
        chat.append(message)
    *_, whole = [piece async for piece in chat.request_answer()]
    assert isinstance(whole, AssistantMessage)
    assert whole.text == "Asked: a first prompt\n\nAnswered: one\n\nAsked: refused"
    for message in (
        user_message(make_summary_prompt("")),
        whole,
        user_message("and now?"),
        AssistantMessage((TextBlock("two"),)),
        user_message(make_summary_prompt("")),
    ):
        chat.append(message)
    *_, again = [piece async for piece in chat.request_answer()]
    assert isinstance(again, AssistantMessage) and again.text.endswith(
        "Asked: refused\n\nAsked: and now?\n\nAnswered: two"
    )


async def test_says_when_a_name_is_nowhere(ask: Ask) -> None:
    text = (await ask(CODE, "Where is `no_such_name` used?")).text
    assert text.startswith("No line in this folder contains `no_such_name` as a whole word.")
    text = (await ask(CODE, "Where is `load_settings` used in lib/?")).text
    assert text.startswith("No line in `lib/` contains `load_settings` as a whole word.")


async def test_counts_more_files_than_can_be_listed(ask: Ask) -> None:
    tree = {f"lib/m{n}.py": "x\n" * (n % 2) for n in range(130)} | {"lib/README": "Inner text.\n"}
    report = await ask(tree, "How many files are there?")
    assert (
        report.text.startswith("131 files in this folder match `**/*`. Not counted: files")
        and "66 are text and not empty" in report.text
    )
    assert "⚠" not in report.text and "| `.py` | 65 | 65 |" in report.text


STACK = {
    "pyproject.toml": '[project]\nname = "d"\ndependencies = ["flask>=3"]\n'
    '[dependency-groups]\ndev = ["ruff"]\n'
    '[build-system]\nbuild-backend = "hatchling.build"\n',
    "uv.lock": "version = 1\n",
    "src/d/a.py": "x = 1\n",
    "Makefile": "all:\n",
    "Dockerfile": "FROM scratch\n",
}


async def test_tells_the_technology_stack(ask: Ask) -> None:
    report = await ask(STACK, "What is the technology stack?")
    assert all(
        word in report.text
        for word in (
            "Python",
            "uv",
            "Make",
            "Docker",
            "Hatchling",
            "[project/dependencies]\n    flask>=3\n",
            "[dependency-groups/dev]\n    ruff\n",
        )
    )
    assert report.calls == {"task": 1}


async def test_what_is_left_out_is_named_and_the_run_ends_not_done(ask: Ask) -> None:
    report = await ask(CODE, "Count the lines of code and then deploy it")
    assert "Total" in report.text and "“deploy it”" in report.text
    assert report.reason == "ERROR" and report.error


@pytest.mark.parametrize("prompt", ["fix the tests", "修复测试"])
async def test_anything_else_ends_in_an_error_that_says_what_it_can_do(
    ask: Ask, prompt: str
) -> None:
    report = await ask(CODE, prompt)
    is_chinese = prompt == "修复测试"
    words = (
        ("它能完成以下", "其他请求需要")
        if is_chinese
        else ("It answers these", "For everything else")
    )
    assert report.reason == "ERROR" and all(each in report.error for each in words)
    assert "ANTHROPIC_API_KEY" in report.error and "OLLAMA_HOST" in report.error


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("What can you do?", "It answers these requests"),
        ("你好", "它能完成以下"),
    ],
)
async def test_a_greeting_is_answered_with_the_abilities(ask: Ask, prompt: str, words: str) -> None:
    report = await ask(CODE, prompt)
    assert report.ok and words in report.text
    assert max(map(len, report.text.splitlines())) <= 80


@pytest.mark.parametrize("language", [0, 1])
@pytest.mark.parametrize("lead", [("", ""), ("use subtasks: ", "用子任务")])
def test_each_listed_request_is_understood_as_it_is_written(
    language: int, lead: tuple[str, str]
) -> None:
    text = load_data("texts")["abilities"][language]
    requests = [line[2:] for line in text.splitlines() if line.startswith("- ")]
    assert len(requests) == 12
    if lead[language].isascii():
        requests = requests[: -1 if lead[language] else None]
    for request in requests:
        understood, unsupported = parse_prompt(lead[language] + request)
        assert len(understood) == 1 + ("README" in request) and not unsupported, request
        assert understood[0].delegate is bool(lead[language]), request


README = """<p align="center"><img src="logo.png"></p>

# Kettle

[![build](https://example.invalid/b.svg)](https://example.invalid)

Kettle is a *device* that boils water for
[tea](https://example.invalid) and coffee.

## Install
"""


@pytest.mark.parametrize(
    "prompt", ["what is this", "What does this project do?", "这个项目是做什么的?", "这是什么项目"]
)
async def test_what_a_project_is_for_is_quoted_from_its_readme(ask: Ask, prompt: str) -> None:
    report = await ask({"README.md": README, "src/a.py": "x = 1\n"}, prompt)
    rows = "README.md:3:# Kettle\nREADME.md:7:Kettle is a *device* that boils water for\n"
    assert report.ok and rows in report.text and "a.py" not in report.text


async def test_piped_text_is_named_as_not_done(ask: Ask) -> None:
    report = await ask(CODE, "summarise src/a.py\n\n<stdin>\nfind the tests\n</stdin>")
    assert not report.ok and "“<stdin>”" in report.text and "`src/a.py`" in report.text


async def test_a_go_project_with_many_packages(ask: Ask) -> None:
    tree = {"go.mod": "module example.invalid/big\n\nrequire github.com/stretchr/testify v1.9.0\n"}
    for n in range(30):
        tree[f"pkg/p{n}/a.go"] = (
            f"// Package p{n} does job {n}.\npackage p{n}\n\nfunc Job{n}() {{}}\n"
        )
        tree[f"pkg/p{n}/a_test.go"] = (
            f'package p{n}\n\nimport (\n\t"testing"\n)\n\nfunc TestJob{n}(t *testing.T) {{}}\n'
        )
    report = await ask(tree, "find the testing framework, then summarise all .go files in pkg/p3/ ")
    assert "**Go testing**" in report.text and "its use in 30 files" in report.text
    testify = "`require github.com/stretchr/testify v1.9.0` (`go.mod` 3) |"
    assert f"**Testify** | Testing library | listed in manifests: {testify}" in report.text
    assert "Package p3 does job 3." in report.text


SEARCH = "read grep glob"
CHILD = "task read grep glob bash"
SUMMARISE = "Summarise all .py files"
STACK_QUESTION = "What is the technology stack?"


async def talk(
    tools: str, prompt: str, *results: ToolResultBlock | tuple[ToolResultBlock, str]
) -> list[AssistantMessage]:
    """Return the answers to a prompt and to the results of their first calls.

    Arguments:
        results: each one may have a text beside it.
    """
    config = RequestConfig(system="s", tools=tuple(map(make_tool, tools.split())))
    chat = OfflineModel().start_conversation(config)
    chat.append(user_message(prompt))
    answers: list[AssistantMessage] = []
    for number in range(len(results) + 1):
        *pieces, answer = [item async for item in chat.request_answer()]
        assert isinstance(answer, AssistantMessage)
        assert "".join(getattr(piece, "text", "") for piece in pieces) == answer.text
        answers.append(answer)
        if number < len(results):
            result = results[number]
            block, *texts = result if isinstance(result, tuple) else (result,)
            own = replace(block, call_id=answer.tool_calls[0].id)
            chat.append(answer)
            chat.append(UserMessage((own, *map(TextBlock, texts))))
    return answers


async def test_a_search_that_fails_is_said_and_the_run_ends_not_done() -> None:
    note = "(stopped after 20 s: searched 3,387 of 20,001 files, nothing there matches)"
    with pytest.raises(ModelRefused, match="searched 3,387 of 20,001 files"):
        await talk("grep", "where is `foo` defined?", ToolResultBlock("", "grep", note, error=True))


async def test_ids_of_calls_are_unique_in_a_conversation() -> None:
    one, two = await talk(SEARCH, SUMMARISE, ToolResultBlock("", "glob", "a.py\nb.py"))
    assert [c.arguments["file_path"] for c in two.tool_calls] == ["a.py", "b.py"]
    assert len({c.id for c in (*one.tool_calls, *two.tool_calls)}) == 3


async def test_a_note_beside_results_is_no_new_prompt() -> None:
    note = "All calls failed; where is it defined?"
    _, answer = await talk(SEARCH, SUMMARISE, (ToolResultBlock("", "glob", "a.py"), note))
    assert answer.tool_calls[0].name == "read"


async def test_without_calls_it_tells_what_it_has() -> None:
    config = RequestConfig(system="s", tools=tuple(map(make_tool, SEARCH.split())))
    chat = OfflineModel().start_conversation(config)
    chat.append(user_message(SUMMARISE))
    *_, last = [item async for item in chat.request_answer(tools=False)]
    assert isinstance(last, AssistantMessage)
    assert not last.tool_calls and "Stopped before all was done" in last.text
    assert last.stop_reason is StopReason.REFUSAL


async def test_a_child_s_marks_are_stripped_and_its_limit_is_told() -> None:
    text = (
        "[MAX_TURNS: stopped after 3 turns, its limit; what follows is partial]\nPython.\n"
        "[evidence: 3 tool calls; run 1.1.1]"
    )
    *_, answer = await talk(CHILD, STACK_QUESTION, ToolResultBlock("", "task", text))
    assert answer.text.startswith("Python.") and "[evidence" not in answer.text
    assert "⚠ Technology stack: MAX_TURNS" in answer.text


async def test_a_child_that_is_refused_has_no_empty_summary() -> None:
    text = "[ERROR: only a part was done; what follows is partial]\n[evidence: run 1.1.1]"
    with pytest.raises(ModelRefused) as caught:
        await talk(CHILD, STACK_QUESTION, ToolResultBlock("", "task", text))
    assert "only a part" in str(caught.value) and "what follows" not in str(caught.value)


async def test_a_missing_python_is_reported() -> None:
    results = (
        ToolResultBlock("", "task", "Created `string_utils.py` with `slugify`."),
        ToolResultBlock("", "read", "1\tdef slugify(text):\n2\t    return text"),
        ToolResultBlock("", "bash", "bash: line 1: python3: command not found", error=True),
    )
    with pytest.raises(ModelRefused, match=r"read, but not run: .*python3: command not found"):
        await talk("task read bash", "Create a new module with slugify and verify it", *results)


async def test_it_never_claims_what_it_has_no_tool_for() -> None:
    with pytest.raises(ModelRefused, match="no `write` tool"):
        await talk(SEARCH, "Create a new module")


async def test_at_a_pace_texts_take_the_time_of_their_words_and_calls_none() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    for pace in (0.0, 100.0):
        for tools in (False, True):
            config = RequestConfig(system="s", tools=tuple(map(make_tool, SEARCH.split())))
            chat = OfflineModel(pace=pace, sleep=sleep).start_conversation(config)
            chat.append(user_message(SUMMARISE))
            *pieces, whole = [item async for item in chat.request_answer(tools=tools)]
            assert bool(pieces) is not tools and isinstance(whole, AssistantMessage)
            seconds = whole.usage.output_tokens / pace if pace and pieces else 0.0
            assert sum(waited) == pytest.approx(seconds, rel=0.1)
            waited.clear()


@pytest.mark.parametrize(
    "prompt",
    [
        "Count the .py files and their lines",
        "How many Python files are there, and how many lines are they in total?",
        "How many .py files are there in src and how many lines?",
    ],
)
async def test_a_part_that_was_done_is_not_named_as_not_done(ask: Ask, prompt: str) -> None:
    report = await ask(CODE, prompt)
    assert report.ok and "| **Total** | 2 | 5 |" in report.text and "⚠" not in report.text


async def test_each_folder_of_a_request_is_searched_or_named_as_not_done(ask: Ask) -> None:
    report = await ask(CODE, "How many files are in src, and how many in lib?")
    assert report.text.startswith("2 files in `src/` match") and "“how many in lib?”" in report.text
    report = await ask(CODE, "How many files are in src, all in all?")
    assert report.ok and report.text.startswith("2 files in `src/` match")


async def test_every_answer_from_a_subfolder_names_the_root(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for prompt in ("Where is `nothing` used?", "How many files are there?", "Summarise lib/c.js"):
        assert (await ask(CODE, prompt)).text.startswith("⚠ Only this folder was searched.")
    assert "⚠" not in (await ask(CODE, "hello")).text


async def test_the_placeholder_of_npm_is_no_test_command(ask: Ask) -> None:
    script = '"test": "echo \\"Error: no test specified\\" && exit 1"'
    tree = {"package.json": '{\n  "scripts": {\n    ' + script + "\n  }\n}\n"}
    assert (
        "No line that looks like a test command"
        in (await ask(tree, "How do I run the tests?")).text
    )


async def test_every_package_of_a_go_module_is_listed(ask: Ask) -> None:
    tree = {"go.mod": "module a\n\nrequire (\n\tgocloud.dev v0.45.0\n\ta.io/b v1.0.0\n)\n"}
    text = (await ask(tree, "What are the dependencies?")).text
    assert "4: \tgocloud.dev v0.45.0\n5: \ta.io/b v1.0.0\n" in text


async def test_an_answer_without_a_framework_lists_all_that_were_looked_for(ask: Ask) -> None:
    tree = {"a.py": "x = 1\n", "vendor/setup.cfg": "", "testdata/tox.ini": ""}
    text = (await ask(tree, "Which testing framework does this project use?")).text
    names = text.partition("Looked for: ")[2].partition(".\n\n")[0].split(", ")
    assert {"pytest", "Jest", "JUnit Jupiter", "Go testing", "RSpec", "PHPUnit"} <= {*names}
    assert f"Only {len(names)} names were looked for, listed below" in text.partition("\n")[0]
    assert "these names: `vendor`, `testdata`, " in text, "folders that are there come first"


async def test_a_kind_of_dependencies_is_not_ignored(ask: Ask) -> None:
    report = await ask({"go.mod": "module a\n"}, "What are the development dependencies?")
    assert "did not understand “development”" in report.error


@pytest.mark.parametrize(
    "prompt",
    [
        "What are the runtime dependencies?",
        "Which dependencies does it need to run?",
        "线上环境的依赖是哪些？",
    ],
)
async def test_dependencies_of_development_are_left_out_when_asked(ask: Ask, prompt: str) -> None:
    tree = {
        "package.json": '{"devDependencies": {"jest": "1"}}',
        "pyproject.toml": (
            '[project]\ndependencies = ["httpx"]\n[dependency-groups]\ndev = ["ruff"]\n'
        ),
    }
    text = (await ask(tree, prompt)).text
    assert re.search("Left out: sections with names such as dev|不包括：名称含 dev", text)
    assert "httpx" in text
    assert "jest" not in text and "ruff" not in text


async def test_a_folder_outside_of_the_session_is_said_with_the_place_of_the_repository(
    tmp_path: Path,
) -> None:
    (tmp_path / "tpl" / "a").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    model, home = OfflineModel(), str(tmp_path / "home")
    folder = str(tmp_path / "tpl")
    async with Session(model=model, cwd=folder, home=home, journal="memory") as session:
        report = await session.run("how many files are in tpl/a?")
    assert report.error
    assert f"run `mudroom -C {tmp_path}`" in report.error


async def test_a_folder_without_known_languages_has_no_stack(ask: Ask) -> None:
    report = await ask({"bin/run": "echo\n"}, "what is the stack in bin?")
    assert report.reason == "GOAL"
    assert "No file or setting of a known language or tool was seen in `bin/`" in report.text


async def test_a_file_name_without_a_folder_is_looked_for_in_all_folders(ask: Ask) -> None:
    tree = {"pom.xml": "a\n", "lib/pom.xml": "a\n", "lib/deep/Cursor.php": "a\nb\n"}
    report = await ask(tree, "how many lines does pom.xml have?")
    assert "2 files in this folder match `**/pom.xml`" in report.text
    report = await ask(tree, "how many lines does Cursor.php have?")
    assert "1 file in this folder match `**/Cursor.php`" in report.text
    assert "with 2 lines" in report.text
    report = await ask(tree, "how many lines do Cursor.php and nope.php have?")
    assert "no file nope.php" in report.text


async def test_a_folder_with_a_dot_and_a_second_folder_are_not_mixed(ask: Ask) -> None:
    tree = {".mvn/a.py": "x = 1\n", "etc/b.py": "x = 1\n"}
    text = (await ask(tree, "summarise the files in .mvn and in etc")).text
    assert "`.mvn/a.py`" in text and "etc/b.py" not in text and "“in etc”" in text


@pytest.mark.parametrize("path", ["tests/A.Tests", "`tests/A.Tests`", "A.Tool"])
async def test_a_path_with_a_dot_is_a_folder_when_a_folder_is_there(ask: Ask, path: str) -> None:
    tree = {f"{path.strip('`')}/{name}": "x\n" for name in ("a.cs", "sub/b.cs", "c.md")}
    report = await ask(tree | {"main.cs": "x\n"}, f"How many C# files are in {path}?")
    bare = path.strip("`")
    assert report.ok and f"2 files in `{bare}/` match `**/*.cs`" in report.text
    report = await ask(tree, f"How many lines are in {path}?")
    assert report.ok and f"3 files in `{bare}/` match `**/*`" in report.text
    report = await ask(tree, f"Summarise the .md files in {path}")
    assert report.ok and f"1 of 1 file that match `**/*.md` in `{bare}/`" in report.text


@pytest.mark.parametrize("path", ["tests/A.Tests", "A.Tests", "src/tests/A.Tests"])
async def test_nothing_is_counted_in_place_of_a_path_that_is_not_there(ask: Ask, path: str) -> None:
    report = await ask({"main.cs": "x\n"}, f"How many C# files are in {path}?")
    assert not report.ok and f"There is no file or folder `{path}`" in str(report.error)
    assert "1 file" not in report.text


async def test_a_folder_beside_another_path_is_refused(ask: Ask) -> None:
    tree = {"A.Tests/a.cs": "x\n", "b.cs": "y\n"}
    report = await ask(tree, "How many lines do A.Tests and b.cs have?")
    assert not report.ok and "`A.Tests` is a folder" in str(report.error)


async def test_headers_are_counted_with_cpp_and_said_to_be_of_c_or_cpp(ask: Ask) -> None:
    report = await ask({"include/fmt/a.h": "x\n"}, "How many lines of C++ are in include/fmt?")
    assert report.ok and "| `.h` (headers of C or C++) | 1 | 1 |" in report.text


async def test_the_manifests_of_a_description_are_named_when_none_has_one(ask: Ask) -> None:
    tree = {"a.podspec": "s.summary = 'Boils water'\n", "README.md": README}
    report = await ask(tree, "what is this project?")
    assert "files with these names at the top of this folder: package.json, pypro" in report.text
    assert report.text.startswith("From the README")
    assert "Other manifests were not searched" in report.text


async def test_a_summary_says_in_one_short_line_what_it_may_lack(ask: Ask) -> None:
    report = await ask(CODE, "summarise all .py files")
    assert "Files can have more of both." in report.text
    assert report.text.index("| File |") < report.text.index("Quoted: a comment")


async def test_a_prompt_after_a_refused_one_is_read_alone(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_text("x = 1\n")
    async with Session(
        model=OfflineModel(), cwd=str(tree), home=str(tmp_path / "home"), journal="memory"
    ) as session:
        refused = await session.run("paint the house in blue")
        report = await session.run("how many files are there?")
    assert not refused.ok and report.ok and "1 file in this folder" in report.text


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("Which testing framework does this project use?", "cannot fill outputs"),
        ("这个项目用什么测试框架？", "不能填写输出值"),
    ],
)
@pytest.mark.parametrize("required", [[], ["framework"]])
async def test_a_request_for_outputs_is_refused_at_the_first_turn(
    tmp_path: Path, prompt: str, message: str, required: list[str]
) -> None:
    schema = {"type": "object", "properties": {"framework": {"type": "string"}}}
    async with Session(
        model=OfflineModel(), cwd=str(tmp_path), home=str(tmp_path / "home"), journal="memory"
    ) as session:
        report = await session.run(prompt, outputs={**schema, "required": required})
    assert (report.reason, report.calls) == ("ERROR", {})
    assert message in report.error and "examples/02_map_over_files.py" in report.error
    assert "stopped" not in report.error
