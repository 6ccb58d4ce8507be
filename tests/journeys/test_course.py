"""The prompts of a course on agents, lesson by lesson, with a scripted model."""

from __future__ import annotations

import itertools
import json

from tests.workspaces.git_projects import make_repository

from mudroom._engine.compaction.summary import SUMMARY_PROMPT
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import ask, follow, list_board, make_call, react, read_requests


async def test_commands_run_in_the_background_while_the_model_works(mudroom: Mudroom) -> None:
    prompt = 'Start 3 background tasks: "sleep 2", "sleep 4", "sleep 6". Check their status.'
    commands = [f"until test -e go{n}; do sleep 0.05; done" for n in range(3)]
    turns = [
        [make_call("bash", command=command, run_in_background=True) for command in commands],
        [make_call("check_background")],
        [make_call("write", file_path=f"go{n}", content="") for n in range(3)],
        [make_call("wait", until="all")],
    ]
    async with ModelServer(follow({prompt: turns})) as server:
        await ask(mudroom, server, prompt)
    messages = read_requests(server, prompt)
    assert all(f"{command}: " in messages[2] for command in commands), messages[2]
    assert sum(text.count("<task-notification>") for text in messages) == 3
    assert sum(text.count("exit code 0") for text in messages) == 3


CREATE = "Create 3 tasks. Make them depend on each other in order."
LIST = "List all tasks and show the dependency graph"
COMPLETE = "Complete task 1 and then list tasks to see task 2 unblocked"


async def test_the_board_is_filled_listed_and_worked_off(mudroom: Mudroom) -> None:
    create = [
        make_call("task_create", subject="Setup project"),
        make_call("task_create", subject="Write code", blocked_by=[1]),
        make_call("task_create", subject="Write tests", blocked_by=[2]),
    ]
    complete = [make_call("complete_task", task_id=1), make_call("list_tasks")]
    script = {CREATE: [create], LIST: [[make_call("TaskList")]], COMPLETE: [complete]}
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, CREATE, "--board")
        assert await list_board(mudroom) == [
            ("Setup project", "pending", []),
            ("Write code", "pending", [1]),
            ("Write tests", "pending", [2]),
        ]
        assert "[ ] #3 Write tests (waits for #2)" in await ask(mudroom, server, LIST, "--board")
        done = await ask(mudroom, server, COMPLETE, "--board")
        assert "#1 is completed; ready now: #2" in done
        assert (await list_board(mudroom))[0] == ("Setup project", "completed", [])


async def test_the_board_is_shown_and_changed_at_the_prompt(tmux: Tmux) -> None:
    async with ModelServer(lambda _: "done") as server:
        await tmux.open(server, "--board", rows=40)
        for line, answer in (
            ("/tasks", "The task board of this project is empty."),
            ("/tasks add Read the plan", "[ ] #1 Read the plan"),
            ("/tasks done 1", "#1 is done"),
            ("/board", "[x] #1 Read the plan"),
            ("/tasks done 9", "no task #9"),
            ("/tasks drop 1", "/tasks drop is not known, or lacks a value"),
        ):
            await tmux.say(line)
            await tmux.expect(answer)


READ_ALL = "Read every Python file in the agents/ directory one by one"
KEEP_READING = "Keep reading files until compression triggers automatically"
COMPACT = "Use the compact tool to manually compress the conversation"
FILES = 12


class Reader:
    """A script that reads the files one by one, until each prompt has what it asks for."""

    def __init__(self) -> None:
        self.summaries = 0
        self._numbers = itertools.cycle(range(FILES))
        self._prompt = READ_ALL
        self._calls = 0

    def __call__(self, request: ServerRequest) -> ServerAnswer:
        last = str(request.messages[-1]["content"])
        if SUMMARY_PROMPT.partition(",")[0] in last:
            self.summaries += 1
            return "NOTES-OF-THE-MODEL"
        for prompt in (READ_ALL, KEEP_READING, COMPACT):
            if self._prompt is not prompt and prompt in last:
                self._prompt, self._calls = prompt, 0
        self._calls += 1
        read = make_call("read", file_path=f"agents/{next(self._numbers)}.py")
        if self._prompt is READ_ALL:
            return [read] if self._calls <= FILES else "all are read"
        if self._prompt is KEEP_READING:
            is_over = self.summaries > 0 or self._calls > 40
            return "compacted" if is_over else [f"thought {'y' * 5_000}", read]
        if self._calls <= 4:
            return [f"thought {'z' * 5_000}", read]
        return [make_call("compact", focus="the files")] if self._calls == 5 else "done"


async def test_a_conversation_is_cleared_and_compacted(mudroom: Mudroom) -> None:
    mudroom.home.mkdir()
    (mudroom.home / "config.toml").write_text("context_window = 30000\n")
    (mudroom.project / "agents").mkdir()
    for number in range(FILES):
        text = "".join(f"value_{line} = {number}\n" for line in range(500))
        (mudroom.project / "agents" / f"{number}.py").write_text(text)
    reader = Reader()
    async with ModelServer(reader) as server:
        await ask(mudroom, server, READ_ALL)
        bodies = [request.body.decode() for request in server.requests]
        assert all(f"agents/{number}.py" in bodies[-1] for number in range(FILES))
        assert ["cleared to save space" in body for body in (bodies[0], bodies[-1])] == [
            False,
            True,
        ]
        await ask(mudroom, server, KEEP_READING, "-c")
        assert reader.summaries == 1
        body = server.requests[-1].body.decode()
        assert all(words in body for words in ("NOTES-OF-THE-MODEL", KEEP_READING, READ_ALL))
        await ask(mudroom, server, COMPACT, "-c")
        assert reader.summaries == 2
        assert COMPACT in server.requests[-1].body.decode()


SPAWN = "Spawn alice (coder) and bob (tester). Have alice send bob a message."
BROADCAST = 'Broadcast "status update: phase 1 complete" to all teammates'
INBOX = "Check the lead inbox for any messages"


async def test_teammates_read_messages_of_each_other_and_of_the_lead(mudroom: Mudroom) -> None:
    lead = [
        [make_call("spawn_teammate", name="bob", role="tester", prompt="START BOB")],
        [make_call("spawn_teammate", name="alice", role="coder", prompt="START ALICE")],
        "spawned",
        "all have ended",
    ]
    script = {
        "START ALICE": [[make_call("send_message", to="bob", content="hello from alice")]],
        "START BOB": ["bob is ready"],
        SPAWN: lead,
    }
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, SPAWN)
    received = [text for text in read_requests(server, "START BOB") if "hello from alice" in text]
    assert len(received) == 1 and 'from=\\"alice\\"' in received[0]

    def answer_lead(request: ServerRequest) -> ServerAnswer:
        text = str(request.messages[-1])
        if BROADCAST in text:
            return [make_call("broadcast", content="status update: phase 1 complete")]
        if INBOX in text:
            return [make_call("send_message", to="alice", message="Report to me.")]
        if "tool_result" in text and "Report to me." in str(request.messages[-2]):
            return [make_call("read_inbox")]
        return "done"

    report = [make_call("send_message", to="lead", message="phase 2 begins")]
    script = {
        "START ALICE": react({"Report to me.": report}),
        "START BOB": [],
        SPAWN: [answer_lead] * 99,
    }
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, BROADCAST, "-c")
        for name in ("START ALICE", "START BOB"):
            texts = "".join(read_requests(server, name))
            assert texts.count("status update: phase 1 complete") == 1, texts
        await ask(mudroom, server, INBOX, "-c")
    messages = [text for text in read_requests(server, SPAWN) if "phase 2 begins" in text]
    assert len(messages) == 1 and '<message from=\\"alice\\"' in messages[0]


async def test_teammates_claim_the_tasks_of_the_board(mudroom: Mudroom) -> None:
    prompt = "Create 3 tasks on the board, then spawn alice and bob. Watch them auto-claim."

    def claim_and_complete(*ids: int) -> list[ServerAnswer]:
        turns: list[ServerAnswer] = [[make_call("list_tasks")]]
        for task_id in ids:
            turns.append([make_call("claim_task", task_id=task_id)])
            turns.append([make_call("complete_task", task_id=task_id)])
        return turns

    lead = [
        [make_call("task_create", subject=f"Part {n}") for n in (1, 2, 3)],
        [
            make_call("spawn_teammate", name="alice", role="coder", prompt="START ALICE"),
            make_call("spawn_teammate", name="bob", role="coder", prompt="START BOB"),
        ],
    ]
    script = {
        "START ALICE": claim_and_complete(1, 3),
        "START BOB": claim_and_complete(2),
        prompt: lead,
    }
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, prompt, "--board")
    assert [status for _, status, _ in await list_board(mudroom)] == ["completed"] * 3
    assert "#2 is completed" in "".join(read_requests(server, "START BOB"))


BIND = 'Create worktree "auth-refactor" for task 1, then bind task 2 to a new worktree "ui-login".'
STATUS = 'Run "git status --short" in worktree "auth-refactor".'


async def test_two_tasks_are_worked_on_in_isolated_workspaces(mudroom: Mudroom) -> None:
    make_repository(mudroom.project, {})
    bind = [
        make_call("task", name="auth-refactor", prompt="START AUTH", isolation="isolated"),
        make_call("task", name="ui-login", prompt="START UI", isolation="isolated"),
    ]
    look = make_call("bash", command="git status --short; ls")
    script = {
        "START AUTH": [
            [make_call("write", file_path="auth.py", content="auth\n")],
            [look],
            *react({"SHOW STATUS": [make_call("bash", command="git status --short")]}),
        ],
        "START UI": [[make_call("write", file_path="login.html", content="login\n")], [look]],
        BIND: react(
            {
                BIND: bind,
                STATUS: [make_call("send_message", to="auth-refactor", message="SHOW STATUS")],
            }
        ),
    }

    async def list_workspaces() -> dict[str, str]:
        done = await mudroom("workspaces", "list", "--all", "--json")
        assert done.code == 0, done.err
        return {work["files"][0]: work["id"] for work in json.loads(done.out) if work["files"]}

    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, BIND)
        auth, login = (read_requests(server, name)[-1] for name in ("START AUTH", "START UI"))
        assert "auth.py" in auth and "login.html" not in auth, "each has files of its own"
        assert "login.html" in login and "auth.py" not in login
        assert (mudroom.project / "auth.py").read_text() == "auth\n", "the work is merged"
        assert (mudroom.project / "login.html").read_text() == "login\n"
        await ask(mudroom, server, STATUS, "-c")
        assert "auth.py" in read_requests(server, "START AUTH")[-1]
    works = await list_workspaces()
    assert sorted(works) == ["auth.py", "login.html"]
    assert (await mudroom("workspaces", "drop", works["auth.py"])).code == 0
    assert list(await list_workspaces()) == ["login.html"]
    assert (mudroom.project / "auth.py").exists(), "the merged files stay"
