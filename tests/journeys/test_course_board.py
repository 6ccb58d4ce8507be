"""The prompts of the course's lesson on tasks, with a scripted model, in two languages."""

from __future__ import annotations

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL, each_language, find_prompt, list_board, make_call

READY = "sandbox"
"""Text on the screen when the session is open."""

IN_ORDER = (
    'Create 3 tasks: "Setup project", "Write code", "Write tests". Make them depend on each other '
    "in order.",
    '创建 3 个任务: "Setup project"、"Write code"、"Write tests", 让它们按顺序互相依赖。',
)
LIST = ("List all tasks and show the dependency graph", "列出所有任务并显示依赖关系图")
COMPLETE = (
    "Complete task 1 and then list tasks to see task 2 unblocked",
    "完成任务 1, 然后列出任务, 看任务 2 是否解锁",
)
GRAPH = (
    "Create a task board for refactoring: parse -> transform -> emit -> test, where transform and "
    "emit can run in parallel after parse",
    "为重构创建任务看板: parse -> transform -> emit -> test, 其中 transform 和 emit 可以在 parse "
    "之后并行",
)


def answer(request: ServerRequest) -> ServerAnswer:
    """Answer each prompt of the lesson with the calls that it asks for."""
    prompt = find_prompt(request)
    if request.turn:
        return "done"
    if prompt in IN_ORDER:
        return [
            make_call("task_create", subject="Setup project"),
            make_call("task_create", subject="Write code", blocked_by=[1]),
            make_call("task_create", subject="Write tests", blocked_by=[2]),
        ]
    if prompt in GRAPH:
        return [
            make_call("task_create", subject="parse"),
            make_call("task_create", subject="transform", blocked_by=[1]),
            make_call("task_create", subject="emit", blocked_by=[1]),
            make_call("task_create", subject="test", blocked_by=[2, 3]),
        ]
    if prompt in COMPLETE:
        return [make_call("complete_task", task_id=1), make_call("list_tasks")]
    return [make_call("TaskList")]


@each_language
async def test_the_prompts_of_the_lesson_change_the_board(mudroom: Mudroom, language: int) -> None:
    async with ModelServer(answer) as server:

        async def run(prompt: tuple[str, str]) -> str:
            done = await mudroom(
                "-p", prompt[language], *MODEL, "--board", "-o", "stream-json", url=server.url
            )
            assert done.code == 0, done.err
            return done.out

        await run(IN_ORDER)
        assert await list_board(mudroom) == [
            ("Setup project", "pending", []),
            ("Write code", "pending", [1]),
            ("Write tests", "pending", [2]),
        ]
        assert "[ ] #3 Write tests (waits for #2)" in await run(LIST)
        assert "#1 is completed; ready now: #2" in await run(COMPLETE)
        assert [status for _, status, _ in await list_board(mudroom)] == [
            "completed",
            "pending",
            "pending",
        ]


@each_language
async def test_a_graph_with_parallel_tasks_is_put_on_the_board(
    mudroom: Mudroom, language: int
) -> None:
    async with ModelServer(answer) as server:
        done = await mudroom("-p", GRAPH[language], *MODEL, "--board", url=server.url)
    assert done.code == 0, done.err
    assert [waits for _, _, waits in await list_board(mudroom)] == [[], [1], [1], [2, 3]]


async def test_the_board_is_shown_and_changed_at_the_prompt(tmux: Tmux) -> None:
    async with ModelServer(answer) as server:
        await tmux.start(*MODEL, "--board", url=server.url, rows=40)
        await tmux.expect(READY)
        await tmux.say("/tasks")
        await tmux.expect("The task board of this project is empty.")
        await tmux.say("/tasks add Read the plan")
        await tmux.expect("[ ] #1 Read the plan")
        await tmux.say("/tasks done 1")
        await tmux.expect("#1 is done")
        await tmux.say("/board")
        await tmux.expect("[x] #1 Read the plan", "(1/1 completed, 0 ready)")
        await tmux.say("/tasks done 9")
        await tmux.expect("no task #9")
        await tmux.say("/tasks drop 1")
        await tmux.expect("/tasks drop is not known, or lacks a value")
