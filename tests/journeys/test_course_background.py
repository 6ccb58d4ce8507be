"""The prompts of the course's lesson on background tasks, with a scripted model."""

from __future__ import annotations

import shlex
import sys

from mudroom.testing.model_server import ModelServer

from .conftest import Mudroom
from .course import ask, each_language, follow, make_call, read_requests

ONE = (
    'Run "sleep 5 && echo done" in the background, then create a file while it runs',
    '在后台运行 "sleep 5 && echo done", 在它运行时创建一个文件',
)
THREE = (
    'Start 3 background tasks: "sleep 2", "sleep 4", "sleep 6". Check their status.',
    '启动 3 个后台任务: "sleep 2"、"sleep 4"、"sleep 6", 检查它们的状态。',
)
PYTEST = (
    "Run pytest in the background and keep working on other things",
    "在后台运行 pytest, 同时继续做其他事情",
)
WAITS = [f"until test -e go{n}; do sleep 0.05; done" for n in range(3)]


@each_language
async def test_a_file_is_created_while_a_command_runs(mudroom: Mudroom, language: int) -> None:
    prompt = ONE[language]
    command = "until test -e meanwhile.txt; do sleep 0.05; done && echo done"
    turns = [
        [make_call("background_run", command=command)],
        [make_call("write", file_path="meanwhile.txt", content="made meanwhile")],
        [make_call("wait")],
    ]
    async with ModelServer(follow({prompt: turns})) as server:
        await ask(mudroom, server, prompt)
    messages = read_requests(server, prompt)
    assert "<task-notification>" not in messages[0]
    assert "tool_result" in messages[1] and '"done' not in messages[1], "the call returns at once"
    assert (mudroom.project / "meanwhile.txt").read_text() == "made meanwhile"
    notifications = [text for text in messages if "<task-notification>" in text]
    assert len(notifications) == 1
    assert "exit code 0" in notifications[0] and "done" in notifications[0]


@each_language
async def test_the_status_of_three_commands_is_listed(mudroom: Mudroom, language: int) -> None:
    prompt = THREE[language]
    turns = [
        [make_call("bash", command=command, run_in_background=True) for command in WAITS],
        [make_call("check_background")],
        [make_call("write", file_path=f"go{n}", content="") for n in range(3)],
        [make_call("wait", until="all")],
    ]
    async with ModelServer(follow({prompt: turns})) as server:
        await ask(mudroom, server, prompt)
    messages = read_requests(server, prompt)
    assert all(f"{command}: " in messages[2] for command in WAITS), messages[2]
    assert sum(text.count("<task-notification>") for text in messages) == 3
    assert sum(text.count("exit code 0") for text in messages) == 3


@each_language
async def test_pytest_runs_while_the_model_works(mudroom: Mudroom, language: int) -> None:
    prompt = PYTEST[language]
    (mudroom.project / "test_sum.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    command = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider test_sum.py"
    turns = [
        [make_call("background_run", command=command)],
        [make_call("read", file_path="f0.txt")],
        [make_call("write", file_path="notes.txt", content="MUD-0 is read")],
        [make_call("wait")],
    ]
    async with ModelServer(follow({prompt: turns})) as server:
        await ask(mudroom, server, prompt)
    assert (mudroom.project / "notes.txt").read_text() == "MUD-0 is read"
    (notification,) = [
        text for text in read_requests(server, prompt) if "<task-notification>" in text
    ]
    assert "1 passed" in notification
