"""`mudroom board run` through the real command line, against a model server on loopback."""

import asyncio
import json
import re

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom
from .course import make_call

RUN = ("board", "run", "--model", "anthropic:claude-sonnet-4-5")


async def add_tasks(mudroom: Mudroom) -> None:
    """Add the tasks parse -> transform, emit -> test."""
    for subject, *blockers in (["parse"], ["transform", "1"], ["emit", "1"], ["test", "2", "3"]):
        words = [word for blocker in blockers for word in ("--after", blocker)]
        assert (await mudroom("board", "add", f"STEP {subject}", *words)).code == 0


def find_step(request: ServerRequest) -> str:
    """Return the subject of the task that a request works on."""
    match = re.search(r"STEP (\w+)", request.body.decode())
    assert match
    return match[1]


async def test_runs_complete_all_tasks_in_order_and_read_the_reports_before(
    mudroom: Mudroom,
) -> None:
    bodies: dict[str, str] = {}

    def answer(request: ServerRequest) -> ServerAnswer:
        bodies[find_step(request)] = request.body.decode()
        return f"REPORT-{find_step(request)}"

    await add_tasks(mudroom)
    async with ModelServer(answer) as server:
        done = await mudroom(*RUN, "--parallel", "2", url=server.url)
    assert (done.code, done.out) == (0, "4 of 4 tasks completed\n"), done.err
    assert next(iter(bodies)) == "parse" and next(reversed(bodies)) == "test" and len(bodies) == 4
    assert "REPORT-transform" in bodies["test"] and "REPORT-emit" in bodies["test"]
    assert "REPORT-parse" in bodies["emit"] and "REPORT-parse" not in bodies["test"]
    assert "#1 is done; ready now: #2, #3" in done.err


async def test_a_failed_task_is_tried_twice_and_its_dependants_stay_blocked(
    mudroom: Mudroom,
) -> None:
    steps: list[str] = []

    def answer(request: ServerRequest) -> ServerAnswer:
        steps.append(find_step(request))
        return "" if steps[-1] == "emit" else "done"

    await add_tasks(mudroom)
    async with ModelServer(answer) as server:
        done = await mudroom(*RUN, "-q", url=server.url)
    lines = done.out.splitlines()
    assert (done.code, lines[0]) == (1, "2 of 4 tasks completed"), done.err
    assert lines[1].startswith("[ ] #3 STEP emit: ")
    assert lines[2] == "[ ] #4 STEP test (waits for #3)"
    assert steps.count("transform") == 1 and "test" not in steps


async def test_a_killed_process_is_replaced_and_two_processes_share_the_work(
    mudroom: Mudroom,
) -> None:
    started: list[asyncio.subprocess.Process] = []
    steps: list[str] = []

    def answer(request: ServerRequest) -> ServerAnswer:
        steps.append(find_step(request))
        if steps == ["parse", "transform"]:
            started[0].kill()
        return "done"

    await add_tasks(mudroom)
    async with ModelServer(answer) as server:
        started.append(await mudroom.start(*RUN, "--parallel", "1", url=server.url))
        await started[0].communicate()
        assert started[0].returncode == -9
        both = await asyncio.gather(*[mudroom(*RUN, url=server.url) for _ in range(2)])
    assert [(done.code, done.out) for done in both] == [(0, "4 of 4 tasks completed\n")] * 2
    assert sorted(steps) == ["emit", "parse", "test", "transform", "transform"]


async def test_a_task_runs_with_the_agent_that_its_metadata_names(mudroom: Mudroom) -> None:
    for subject, agent in (("one", "explore"), ("two", "nothing"), ("three", "general")):
        done = await mudroom("board", "add", f"STEP {subject}", "--metadata", f"agent={agent}")
        assert done.code == 0
    systems: dict[str, str] = {}

    def answer(request: ServerRequest) -> ServerAnswer:
        systems[find_step(request)] = str(request.json["system"])
        return "done"

    async with ModelServer(answer) as server:
        done = await mudroom(*RUN, url=server.url)
    assert systems["one"] != systems["three"] and "two" not in systems
    lines = done.out.splitlines()
    assert (done.code, lines[0]) == (1, "2 of 3 tasks completed"), done.err
    assert lines[1].startswith("[ ] #2 STEP two: unknown agent 'nothing'")
    assert (await mudroom("board", "add", "STEP four")).code == 0
    done = await mudroom(*RUN, "--agent", "nothing")
    assert done.code == 2 and "unknown agent 'nothing'" in done.err
    assert "[ ] #4 STEP four" in (await mudroom("board")).out


async def test_a_task_is_completed_only_if_its_check_succeeds(mudroom: Mudroom) -> None:
    check = "echo looked for good.txt; test -e good.txt"
    await mudroom("board", "add", "STEP one", "--metadata", f"check={check}")
    prompts: list[str] = []

    def answer(request: ServerRequest) -> ServerAnswer:
        if request.json["messages"][-1] != request.json["messages"][0]:
            return "done"
        prompts.append(str(request.json["messages"][0]))
        if len(prompts) == 1:
            return "done"
        return [make_call("write", file_path="good.txt", content="good")]

    async with ModelServer(answer) as server:
        done = await mudroom(*RUN, url=server.url)
    assert (done.code, done.out) == (0, "1 of 1 task completed\n"), done.err
    assert len(prompts) == 2
    assert "looked for good.txt" not in prompts[0].replace(check, "")
    assert "a check failed: " in prompts[1] and "(exit code 1, " in prompts[1]
    assert f"#1 is not done: a check failed: {check} (exit code 1, " in done.err
    assert f"#1 is done; {check} green" in done.err


async def test_the_check_of_an_imported_task_is_asked_about(mudroom: Mudroom) -> None:
    check = "touch trace.txt"
    rules = mudroom.project / ".claude/settings.json"
    rules.parent.mkdir()
    rules.write_text(json.dumps({"permissions": {"ask": ["Bash(touch *)"]}}))
    folder = mudroom.project / ".tasks"
    folder.mkdir()
    task = {"id": 1, "subject": "STEP one", "status": "pending", "metadata": {"check": check}}
    (folder / "task_1.json").write_text(json.dumps(task))
    assert (await mudroom("board", "import")).code == 0
    async with ModelServer(lambda _: "done") as server:
        done = await mudroom(*RUN, url=server.url)
    assert (done.code, done.out.splitlines()[0]) == (1, "0 of 1 task completed"), done.err
    assert f"#1 is not done: the check '{check}' may not run: " in done.err
