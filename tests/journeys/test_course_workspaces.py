"""The prompts of the course's lesson on worktrees, with isolated workspaces."""

from __future__ import annotations

import json
import subprocess

from mudroom.testing.model_server import ModelServer

from .conftest import Mudroom
from .course import ask, each_language, follow, list_board, make_call, react, read_requests

TASKS = (
    "Create tasks for backend auth and frontend login page, then list tasks.",
    "为后端认证和前端登录页创建任务, 然后列出任务。",
)
BIND = (
    'Create worktree "auth-refactor" for task 1, then bind task 2 to a new worktree "ui-login".',
    '为任务 1 创建 worktree "auth-refactor", 然后把任务 2 绑定到新的 worktree "ui-login"。',
)
STATUS = (
    'Run "git status --short" in worktree "auth-refactor".',
    '在 worktree "auth-refactor" 中运行 "git status --short"。',
)
KEEP = (
    'Keep worktree "ui-login", then list worktrees and inspect events.',
    '保留 worktree "ui-login", 然后列出 worktree 并查看事件。',
)
REMOVE = (
    'Remove worktree "auth-refactor" with complete_task=true, then list tasks/worktrees/events.',
    '删除 worktree "auth-refactor" 并设置 complete_task=true, 然后列出任务、worktree 和事件。',
)


def make_repository(mudroom: Mudroom) -> None:
    """Commit the files of the project."""
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=mudroom.project, check=True)


@each_language
async def test_two_tasks_are_worked_on_in_isolated_workspaces(
    mudroom: Mudroom, language: int
) -> None:
    make_repository(mudroom)
    lead = {
        TASKS: [
            make_call("task_create", subject="backend auth"),
            make_call("task_create", subject="frontend login page"),
            make_call("task_list"),
        ],
        BIND: [
            make_call("task", name="auth-refactor", prompt="START AUTH", isolation="isolated"),
            make_call("task", name="ui-login", prompt="START UI", isolation="isolated"),
        ],
        STATUS: [make_call("send_message", to="auth-refactor", message="SHOW STATUS")],
        REMOVE: [make_call("complete_task", task_id=1), make_call("task_list")],
    }
    look = make_call("bash", command="git status --short; ls")
    status = make_call("bash", command="git status --short")
    script = {
        "START AUTH": [
            [make_call("write", file_path="auth.py", content="auth\n")],
            [look],
            *react({"SHOW STATUS": [status]}),
        ],
        "START UI": [[make_call("write", file_path="login.html", content="login\n")], [look]],
        TASKS[language]: react({prompt[language]: calls for prompt, calls in lead.items()}),
    }
    async with ModelServer(follow(script)) as server:

        async def run(prompt: tuple[str, str], *arguments: str) -> None:
            await ask(mudroom, server, prompt[language], "--board", *arguments)

        async def list_workspaces() -> dict[str, str]:
            done = await mudroom("workspaces", "list", "--all", "--json")
            assert done.code == 0, done.err
            works = json.loads(done.out)
            return {work["files"][0]: work["id"] for work in works if work["files"]}

        await run(TASKS)
        assert len(await list_board(mudroom)) == 2
        await run(BIND, "-c")
        auth, login = (read_requests(server, name)[-1] for name in ("START AUTH", "START UI"))
        assert "auth.py" in auth and "login.html" not in auth, "each has files of its own"
        assert "login.html" in login and "auth.py" not in login
        assert (mudroom.project / "auth.py").read_text() == "auth\n", "the work is merged"
        assert (mudroom.project / "login.html").read_text() == "login\n"
        await run(STATUS, "-c")
        assert "auth.py" in read_requests(server, "START AUTH")[-1]
        await run(KEEP, "-c")
        works = await list_workspaces()
        assert sorted(works) == ["auth.py", "login.html"]
        await run(REMOVE, "-c")
        assert (await mudroom("workspaces", "drop", works["auth.py"])).code == 0
        assert list(await list_workspaces()) == ["login.html"]
    assert [status for _, status, _ in await list_board(mudroom)] == ["completed", "pending"]
    assert (mudroom.project / "auth.py").exists(), "the merged files stay"
