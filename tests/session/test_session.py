"""Session: prompts, tasks, maps, typed outputs, checks, watchers; sessions that do not open."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from threading import enumerate as list_threads
from typing import Any

import pytest

from mudroom import (
    Agent,
    AnyEvent,
    Budget,
    Children,
    JournalError,
    Reason,
    Session,
    ToolCallBlock,
    ToolContext,
    UsageError,
    tool,
)
from mudroom._core.events import CheckFinished, CheckStarted
from mudroom._replay import replay
from mudroom.events import RunFinished, SessionClosed, SessionOpened, StoredEvent, ToolCallStarted
from mudroom.permissions.rules import Permissions
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call

from .conftest import IsolatedOptions, list_texts


async def test_the_second_prompt_continues_the_conversation(isolated: IsolatedOptions) -> None:
    model = ScriptedModel([[call("read", path="notes.txt")], "two lines", "I said two lines"])
    async with Session(model=model, journal="memory", **isolated) as session:
        first = await session.run("how many lines?")
        second = await session.run("what did you say?")
    assert (first.run_id, first.text) == ("1", "two lines")
    assert (second.run_id, second.text) == ("2", "I said two lines")
    texts = list_texts(model.requests[-1])
    assert texts[0] == "how many lines?"
    assert texts[-2:] == ["two lines", "what did you say?"]


async def test_prompts_run_one_at_a_time(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(lambda request: f"answer {request.turn}")
    async with Session(model=model, journal="memory", **isolated) as session:
        reports = await asyncio.gather(*(session.run(f"prompt {n}") for n in range(3)))
    assert [report.text for report in reports] == ["answer 0", "answer 1", "answer 2"]


async def test_a_task_runs_beside_the_conversation_in_a_context_of_its_own(
    isolated: IsolatedOptions,
) -> None:
    model = ScriptedModel(lambda request: f"answer to {list_texts(request)[-1]}")
    async with Session(model=model, journal="memory", **isolated) as session:
        await session.run("a secret")
        report = await session.task("a task", agent="explore")
        next_report = await session.run("go on")
    assert (report.text, report.agent) == ("answer to a task", "explore")
    assert next_report.text == "answer to go on"
    assert list_texts(model.requests[1]) == ["a task"]
    assert model.requests[1].tools == ("read", "glob", "grep", "todo")
    assert list_texts(model.requests[2]) == ["a secret", "answer to a secret", "go on"]


def emit_values(**values: object) -> list[ToolCallBlock]:
    return [
        call("self.emitvalue", emit_variable_name=name, emit_variable_value=value)
        for name, value in values.items()
    ]


async def test_missing_outputs_are_asked_for_by_name(isolated: IsolatedOptions) -> None:
    model = ScriptedModel([emit_values(file="notes.txt"), "I am done", emit_values(lines=2)])
    async with Session(model=model, journal="memory", **isolated) as session:
        report = await session.task("count", outputs={"lines": "how many", "file": "which"})
    assert report.ok
    assert report.outputs == {"file": "notes.txt", "lines": "2"}
    reminder = list_texts(model.requests[2])[-1]
    assert "have not emitted these required outputs: lines." in reminder


async def test_watchers_see_every_event_in_order_until_they_stop(
    isolated: IsolatedOptions,
) -> None:
    seen: list[AnyEvent] = []
    journal = MemoryJournal()
    model = ScriptedModel(["hello", "again"])
    async with Session(model=model, journal=journal, **isolated) as session:
        stop = session.watch(seen.append)
        await session.run("hi")
        stop()
        await session.run("hi")
    stored = [event for event in seen if isinstance(event, StoredEvent)]
    assert isinstance(stored[-1], RunFinished)
    assert len({event.run for event in seen}) == 1
    recorded = journal.events
    assert recorded[1 : 1 + len(stored)] == stored
    assert isinstance(recorded[0], SessionOpened)
    assert isinstance(recorded[-1], SessionClosed)


class FullDisk(MemoryJournal):
    """A journal that takes a number of events and no more."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    async def append(self, *events: StoredEvent) -> int:
        if len(self.events) + len(events) > self.room:
            raise JournalError(
                "the record cannot be written", where="disk", remedy="Make room."
            ) from OSError(errno.ENOSPC, "full")
        return await super().append(*events)


@pytest.mark.parametrize("room", range(1, 12))
async def test_a_journal_error_stops_the_run_before_any_unrecorded_effect(
    isolated: IsolatedOptions, room: int
) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            calls = [call("task", prompt="CHILD"), call("bash", command="echo x >> effects")]
            return "end" if request.turn else calls
        return "done" if request.turn else [call("write", path="new.txt", content="x")]

    journal = FullDisk(room)
    seen: list[AnyEvent] = []
    with pytest.raises(JournalError, match="Make room"):
        async with Session(model=ScriptedModel(answer), journal=journal, **isolated) as session:
            session.watch(seen.append)
            await session.run("PARENT")
    started = {event.call.name for event in journal.events if isinstance(event, ToolCallStarted)}
    folder = Path(isolated["cwd"])
    assert (folder / "effects").exists() <= ("bash" in started)
    assert (folder / "new.txt").exists() <= ("write" in started)
    finished = [event for event in seen if isinstance(event, RunFinished)]
    assert [event for event in finished if event not in journal.events] == []


async def test_the_prompt_budget_holds_for_each_prompt(isolated: IsolatedOptions) -> None:
    def answer(request: Request) -> Answer:
        if not request.tools:
            return "so far"
        return [call("read", path="notes.txt", limit=request.turn + 1)]

    model = ScriptedModel(answer)
    budget = Budget(turns=2)
    async with Session(model=model, prompt_budget=budget, journal="memory", **isolated) as session:
        assert [(await session.run("read")).turns for _ in range(2)] == [3, 3]


def test_run_sync_needs_no_event_loop(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(["hello"])
    assert Session.run_sync("hi", model=model, journal="memory", **isolated).text == "hello"


async def test_an_agent_of_the_caller_may_take_the_prompts(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(["hello"])
    agent = Agent(name="guide", instructions="You guide.", tools=("read",))
    async with Session(model=model, agent=agent, journal="memory", **isolated) as session:
        report = await session.run("hi")
    assert report.agent == "guide"
    assert model.requests[0].tools == ("read",)
    assert model.requests[0].system.startswith("You guide.")


async def test_a_model_for_one_prompt_answers_this_prompt_only(tmp_path: Path) -> None:
    journal = MemoryJournal()
    model = ScriptedModel(lambda request: "scripted")
    async with Session(model=model, cwd=str(tmp_path), journal=journal) as session:
        models = [(await session.run("help", model=name)).model for name in ("", "offline", "")]
    assert [name.partition(":")[0] for name in models] == ["scripted", "offline", "scripted"]
    assert len(model.requests) == 2
    assert await replay(journal.events) == journal.events


NO_MODEL = "no model: no API key and no local server found"


async def test_a_session_without_any_key_does_not_open_and_says_what_to_set(
    isolated: IsolatedOptions,
) -> None:
    session = Session(**isolated)
    with pytest.raises(UsageError, match=NO_MODEL) as raised:
        await session.__aenter__()
    for word in ("ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", 'The model "offline"'):
        assert word in raised.value.remedy
    assert not os.path.exists(isolated["home"])
    with pytest.raises(UsageError, match=r"not open\. Use it as `async with Session"):
        await session.run("hello")


@pytest.mark.parametrize("choice", ["option", "variable", "agent"])
async def test_the_offline_model_is_a_choice(isolated: IsolatedOptions, choice: str) -> None:
    if choice == "variable":
        isolated["environ"] = {"MUDROOM_MODEL": "offline"}
    session = Session(
        model="offline" if choice == "option" else "auto",
        agent=Agent(name="demo", model="offline") if choice == "agent" else "",
        **isolated,
    )
    async with session:
        assert session.model == "offline:rules"
    assert "offline" not in {notice.kind for notice in session.notices}


async def test_a_resumed_session_goes_on_with_the_offline_model_that_it_chose(
    isolated: IsolatedOptions,
) -> None:
    async with Session(model="offline", **isolated) as first:
        await first.run("help")
    async with Session(**isolated, resume=first.id) as resumed:
        assert (await resumed.run("help")).model == "offline:rules"


@tool
def count_words(context: ToolContext, text: str) -> str:
    """Count the words of a text."""
    return f"{context.run_id} {len(text.split())}"


async def test_a_session_that_fails_to_open_leaves_no_file_and_no_thread(tmp_path: Path) -> None:
    for _ in range(2):
        session = Session(
            model=ScriptedModel(["Done."]),
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            children=Children(board=True),
            worker="process",
            tools=[count_words],  # a worker process cannot have it
        )
        with pytest.raises(UsageError, match="the tool count_words cannot be used"):
            async with session:
                pass
    own = [thread.name for thread in list_threads() if thread.name.startswith("mudroom")]
    assert own == []
    folder = tmp_path / "home" / "sessions"
    assert not folder.exists() or os.listdir(folder) == []


CHECK = "cat code.txt; touch trace.txt; ! grep -q bad code.txt"


async def run_task(
    folder: Path, answers: list[Answer], *, permissions: Permissions | None = None, **options: Any
) -> tuple[Any, list[StoredEvent]]:
    """Run a task with a check; return its report and the events, which replay."""
    journal = MemoryJournal()
    project = folder / "project"
    project.mkdir()
    model = ScriptedModel(answers)
    arguments: dict[str, Any] = {"check": CHECK, **options}
    async with Session(
        model=model,
        cwd=str(project),
        home=str(folder / "home"),
        environ={},
        journal=journal,
        permissions=permissions or Permissions(),
        sandbox="auto",
    ) as session:
        report = await session.task("Write code.txt.", **arguments)
    events = [event async for event in journal.read()]
    assert await replay(events) == events
    return report, events


def write(text: str) -> list[Answer]:
    return [[call("write", file_path="code.txt", content=text)], "written"]


async def test_a_task_reaches_its_goal_if_its_check_succeeds(tmp_path: Path) -> None:
    report, events = await run_task(tmp_path, write("good"))
    assert (report.reason, report.text) == (Reason.GOAL, "written")
    types = [type(event) for event in events]
    assert types.index(CheckStarted) < types.index(CheckFinished) < types.index(RunFinished)
    (check,) = [event for event in events if isinstance(event, CheckFinished)]
    assert (check.run, check.command, check.exit_code, check.output) == ("1", CHECK, 0, "good")
    assert not (tmp_path / "project/trace.txt").exists()


async def test_a_task_fails_with_the_output_of_its_check(tmp_path: Path) -> None:
    report, _ = await run_task(tmp_path, write("bad"))
    assert (report.reason, report.text) == (Reason.ERROR, "written")
    assert report.error.startswith(f"a check failed: {CHECK} (exit code 1, ")
    assert report.error.endswith(" s):\nbad")
    assert (tmp_path / "project/code.txt").read_text() == "bad"


async def test_a_check_that_needs_a_confirmation_does_not_run_without_one(tmp_path: Path) -> None:
    command = "touch trace.txt"
    rules = Permissions.of(ask=["Bash(touch *)"])
    report, _ = await run_task(tmp_path, ["done"], check=command, permissions=rules)
    assert report.ok
    shutil.rmtree(tmp_path / "project")
    report, events = await run_task(
        tmp_path, ["done"], check=command, confirm_check=True, permissions=rules
    )
    assert report.reason is Reason.ERROR
    assert report.error.startswith(f"the check {command!r} may not run: ")
    assert not [event for event in events if isinstance(event, CheckStarted)]


async def test_a_task_that_does_not_reach_its_goal_is_not_checked(tmp_path: Path) -> None:
    report, events = await run_task(tmp_path, ["", ""])
    assert report.error == "the model gave an empty answer twice"
    assert not [event for event in events if isinstance(event, CheckStarted)]


async def test_a_check_is_a_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="check"):
        await run_task(tmp_path, write("good"), check=3)
