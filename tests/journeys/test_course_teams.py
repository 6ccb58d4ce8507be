"""The prompts of the course's lessons on teams, protocols and agents that take tasks."""

from __future__ import annotations

import asyncio

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom
from .course import ask, each_language, follow, list_board, make_call, react, read_requests

SPAWN = (
    "Spawn alice (coder) and bob (tester). Have alice send bob a message.",
    "创建 alice (coder) 和 bob (tester), 让 alice 给 bob 发一条消息。",
)
BROADCAST = (
    'Broadcast "status update: phase 1 complete" to all teammates',
    '向所有队友广播 "status update: phase 1 complete"',
)
INBOX = ("Check the lead inbox for any messages", "检查 lead 的收件箱是否有消息")
SHUTDOWN = (
    "Spawn alice as a coder. Then request her shutdown.",
    "创建 coder alice, 然后请求她关闭。",
)
LIST = (
    "List teammates to see alice's status after shutdown approval",
    "列出队友, 查看 alice 在同意关闭之后的状态",
)
REJECT = (
    "Spawn bob with a risky refactoring task. Review and reject his plan.",
    "让 bob 做一个有风险的重构任务, 审查并拒绝他的计划。",
)
APPROVE = (
    "Spawn charlie, have him submit a plan, then approve it.",
    "创建 charlie, 让他提交计划, 然后批准。",
)
CLAIM = (
    "Create 3 tasks on the board, then spawn alice and bob. Watch them auto-claim.",
    "在看板上创建 3 个任务, 然后创建 alice 和 bob, 观察他们自动认领。",
)
FIND_WORK = (
    "Spawn a coder teammate and let it find work from the task board itself",
    "创建一个 coder 队友, 让它自己从任务看板找工作",
)
BLOCKED = (
    "Create tasks with dependencies. Watch teammates respect the blocked order.",
    "创建有依赖关系的任务, 观察队友遵守阻塞顺序。",
)


@each_language
async def test_teammates_read_messages_of_each_other_and_of_the_lead(
    mudroom: Mudroom, language: int
) -> None:
    lead = [
        [make_call("spawn_teammate", name="bob", role="tester", prompt="START BOB")],
        [make_call("spawn_teammate", name="alice", role="coder", prompt="START ALICE")],
        "spawned",
        "all have ended",
    ]
    script = {
        "START ALICE": [[make_call("send_message", to="bob", content="hello from alice")]],
        "START BOB": ["bob is ready"],
        SPAWN[language]: lead,
    }
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, SPAWN[language])
    received = [text for text in read_requests(server, "START BOB") if "hello from alice" in text]
    assert len(received) == 1 and 'from=\\"alice\\"' in received[0]

    def answer_lead(request: ServerRequest) -> ServerAnswer:
        text = str(request.messages[-1])
        if BROADCAST[language] in text:
            return [make_call("broadcast", content="status update: phase 1 complete")]
        if INBOX[language] in text:
            return [make_call("send_message", to="alice", message="Report to me.")]
        if "tool_result" in text and "Report to me." in str(request.messages[-2]):
            return [make_call("read_inbox")]
        return "done"

    report = [make_call("send_message", to="lead", message="phase 2 begins")]
    script = {
        "START ALICE": react({"Report to me.": report}),
        "START BOB": [],
        SPAWN[language]: [answer_lead] * 99,
    }
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, BROADCAST[language], "-c")
        for name in ("START ALICE", "START BOB"):
            texts = "".join(read_requests(server, name))
            assert texts.count("status update: phase 1 complete") == 1, texts
        await ask(mudroom, server, INBOX[language], "-c")
    messages = [text for text in read_requests(server, SPAWN[language]) if "phase 2 begins" in text]
    assert len(messages) == 1 and '<message from=\\"alice\\"' in messages[0]


@each_language
async def test_a_teammate_agrees_to_a_shutdown_and_is_listed_as_stopped(
    mudroom: Mudroom, language: int
) -> None:
    has_asked = asyncio.Event()

    def wait_for_alice(request: ServerRequest) -> ServerAnswer:
        has_asked.set()
        return "I wait for alice."

    async def work(request: ServerRequest) -> ServerAnswer:
        await has_asked.wait()
        return [make_call("read", file_path="f0.txt")]

    def agree(request: ServerRequest) -> ServerAnswer:
        assert "[You are asked to stop." in str(request.messages[-1])
        return [make_call("shutdown_response", approve=True)]

    lead = [
        [
            make_call(
                "spawn_teammate", name="alice", role="coder", prompt="START ALICE", background=True
            )
        ],
        [make_call("shutdown_request", teammate="alice")],
        wait_for_alice,
        *react({LIST[language]: [make_call("list_teammates")]}),
    ]
    script = {"START ALICE": [work, agree, "half of it"], SHUTDOWN[language]: lead}
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, SHUTDOWN[language])
        await ask(mudroom, server, LIST[language], "-c")
    messages = read_requests(server, SHUTDOWN[language])
    assert any("half of it" in text and "task-notification" in text for text in messages)
    assert "alice (general, 1.1.1): stopped" in messages[-1]


@each_language
async def test_a_plan_that_is_rejected_changes_no_file(mudroom: Mudroom, language: int) -> None:
    write = [make_call("write", file_path="f0.txt", content="refactored")]
    lead = [
        [make_call("spawn_teammate", name="bob", role="coder", prompt="START BOB", plan=True)],
        [make_call("review_plan", request_id="1.1.1", approve=False, feedback="too risky")],
    ]
    script = {
        "START BOB": [write, "plan: rewrite all", write, "plan: rewrite one"],
        REJECT[language]: lead,
    }
    before = (mudroom.project / "f0.txt").read_text()
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, REJECT[language])
    assert (mudroom.project / "f0.txt").read_text() == before
    assert any("too risky" in text for text in read_requests(server, "START BOB"))
    assert any("plan: rewrite one" in text for text in read_requests(server, REJECT[language]))


@each_language
async def test_a_plan_that_is_approved_is_carried_out(mudroom: Mudroom, language: int) -> None:
    write = [make_call("write", file_path="plan.txt", content="carried out")]
    was_written: list[bool] = []

    def approve(request: ServerRequest) -> ServerAnswer:
        was_written.append((mudroom.project / "plan.txt").exists())
        return [make_call("review_plan", request_id="1.1.1", approve=True)]

    lead = [
        [make_call("spawn_teammate", name="charlie", role="coder", prompt="START", plan=True)],
        approve,
    ]
    script = {"START": [write, "plan: write one file", write], APPROVE[language]: lead}
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, APPROVE[language])
    assert was_written == [False], "a plan writes nothing"
    assert (mudroom.project / "plan.txt").read_text() == "carried out"


def claim_and_complete(*ids: int) -> list[ServerAnswer]:
    """Return the turns of a teammate that lists the board, and works on tasks."""
    turns: list[ServerAnswer] = [[make_call("list_tasks")]]
    for task_id in ids:
        turns.append([make_call("claim_task", task_id=task_id)])
        turns.append([make_call("complete_task", task_id=task_id)])
    return turns


@each_language
async def test_teammates_claim_the_tasks_of_the_board(mudroom: Mudroom, language: int) -> None:
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
        CLAIM[language]: lead,
    }
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, CLAIM[language], "--board")
    assert [status for _, status, _ in await list_board(mudroom)] == ["completed"] * 3
    texts = "".join(read_requests(server, "START BOB"))
    assert "#2 is completed" in texts


@each_language
async def test_a_teammate_finds_its_work_on_the_board(mudroom: Mudroom, language: int) -> None:
    assert (await mudroom("board", "add", "Write the parser")).code == 0
    write = [make_call("write", file_path="parser.py", content="# parser\n")]
    coder = [
        [make_call("list_tasks")],
        [make_call("claim_task", task_id=1)],
        write,
        [make_call("complete_task", task_id=1)],
    ]
    lead = [[make_call("spawn_teammate", name="carol", role="coder", prompt="START")]]
    async with ModelServer(follow({"START": coder, FIND_WORK[language]: lead})) as server:
        await ask(mudroom, server, FIND_WORK[language], "--board")
    assert "Write the parser" in read_requests(server, "START")[1]
    assert await list_board(mudroom) == [("Write the parser", "completed", [])]
    assert (mudroom.project / "parser.py").read_text() == "# parser\n"


@each_language
async def test_a_teammate_cannot_claim_a_blocked_task(mudroom: Mudroom, language: int) -> None:
    lead = [
        [
            make_call("task_create", subject="first"),
            make_call("task_create", subject="second", blocked_by=[1]),
        ],
        [make_call("spawn_teammate", name="bob", role="coder", prompt="START BOB")],
        [make_call("spawn_teammate", name="alice", role="coder", prompt="START ALICE")],
    ]
    script = {
        "START ALICE": claim_and_complete(1, 2),
        "START BOB": claim_and_complete(2)[:2],
        BLOCKED[language]: lead,
    }
    async with ModelServer(follow(script)) as server:
        await ask(mudroom, server, BLOCKED[language], "--board")
    refusal = read_requests(server, "START BOB")[2]
    assert '"is_error": true' in refusal and "#1" in refusal
    assert [status for _, status, _ in await list_board(mudroom)] == ["completed"] * 2
