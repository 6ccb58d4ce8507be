"""Text of hooks after an automatic compaction: the next request of the run has it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mudroom import Integrations
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import Compacted, NoteInjected, TurnStarted
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.ports import Hooks

from ..waiting import wait_until
from .conftest import Stage, is_summary, join_request, list_message_texts, make_talker

TEXT = "[hook SessionStart] keep to the rules"


class StartHook:
    """A hook of SessionStart that keeps its inputs."""

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []

    async def __call__(self, hook_input: dict[str, Any]) -> dict[str, Any] | None:
        self.inputs.append(hook_input)
        if hook_input["source"] != "compact":
            return None
        return {"hookSpecificOutput": {"additionalContext": "keep to the rules"}}

    def list_sources(self) -> list[str]:
        return [each["source"] for each in self.inputs]


async def test_the_next_request_of_the_run_has_the_text(stage: Stage) -> None:
    stage.write_files(40)
    hook = StartHook()
    async with stage.open(
        make_talker(14), integrations=Integrations(hooks={"SessionStart": [hook]})
    ) as session:
        await session.run("Read all files.")
        assert hook.list_sources() == ["startup", "compact"]
        assert hook.inputs[1]["session_id"] == session.id
        await session.run("Is that all?")
    assert hook.list_sources() == ["startup", "compact"]
    (compaction,) = stage.compactions
    requests = [each for each in stage.model.requests if not is_summary(each)]
    counts = [join_request(each).count(TEXT) for each in requests[: compaction.turn + 1]]
    assert counts == [0] * compaction.turn + [1]
    assert list_message_texts(requests[compaction.turn].messages[-1])[-1] == TEXT
    assert join_request(requests[-1]).count(TEXT) == 1
    assert await replay(stage.events) == stage.events


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_a_killed_session_has_the_text_once(stage: Stage, *, is_recorded: bool) -> None:
    stage.write_files(40)
    hook = StartHook()
    async with stage.open(
        make_talker(14), integrations=Integrations(hooks={"SessionStart": [hook]})
    ) as session:
        await session.run("Read all files.")
    kinds = [type(event) for event in stage.events]
    compaction = kinds.index(Compacted)
    note = kinds.index(NoteInjected)
    assert compaction < note < kinds.index(TurnStarted, compaction)
    kept = (note if is_recorded else compaction) + 1
    async with stage.open(
        make_talker(14),
        resume=stage.session_id,
        kept=kept,
        integrations=Integrations(hooks={"SessionStart": [hook]}),
    ) as session:
        await session.resume_unfinished()
    again = [] if is_recorded else ["compact"]
    assert hook.list_sources() == ["startup", "compact", "resume", *again]
    assert join_request(stage.model.requests[0]).count(TEXT) == 1
    assert await replay(stage.events) == stage.events


@pytest.mark.parametrize("has_background_work", [True, False])
async def test_an_interrupt_of_the_hook_delays_the_text(
    stage: Stage, *, has_background_work: bool
) -> None:
    stage.write_files(40)
    talker = make_talker(14)
    is_in_hook = asyncio.Event()
    hook = StartHook()

    async def wait_at_first(hook_input: dict[str, Any]) -> dict[str, Any] | None:
        output = await hook(hook_input)
        if output and not is_in_hook.is_set():
            is_in_hook.set()
            await asyncio.Event().wait()
        return output

    async def answer(request: Request) -> Answer:
        if request.prompt == "CHILD":
            await asyncio.Event().wait()
        if has_background_work and not request.turn:
            return [call("task", prompt="CHILD", background=True)]
        return talker(request)

    async with stage.open(
        answer, integrations=Integrations(hooks={"SessionStart": [wait_at_first]})
    ) as session:
        run = asyncio.create_task(session.run("Read all files."))
        await is_in_hook.wait()
        assert session.interrupt()
        assert (await run).is_interrupted is has_background_work
        run = asyncio.create_task(session.run("Go on."))
        count = len(stage.model.requests)
        await wait_until(lambda: len(stage.model.requests) > count)
        session.runs.cancel()
        await run
    assert hook.list_sources() == ["startup", "compact", "compact"]
    assert not any(TEXT in join_request(each) for each in stage.model.requests[:count])
    assert join_request(stage.model.requests[count]).count(TEXT) == 1
    assert await replay(stage.events) == stage.events


class TwoNotes(Hooks):
    """Hooks with a text after each compaction, and a note at the first final answer."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self._has_note = False

    async def after_compaction(self, brief: Brief) -> str:
        self.runs.append(brief.run_id)
        return f"compaction {len(self.runs)}"

    async def before_finish(self, brief: Brief, text: str) -> str:
        if brief.is_compaction or self._has_note:
            return ""
        self._has_note = True
        return "go on " + "z" * 45_000


async def test_notes_of_an_end_and_of_a_compaction_in_one_turn_are_replayed(stage: Stage) -> None:
    stage.write_files(40)
    hooks = TwoNotes()
    async with stage.open(make_talker(6), integrations=Integrations(hooks=hooks)) as session:
        await session.run("Read all files.")
    notes = [(each.turn, each.text[:12]) for each in stage.select(NoteInjected)]
    assert notes[:2] == [(7, "go on zzzzzz"), (7, "compaction 1")]
    assert hooks.runs == ["1"] * len(stage.compactions)
    assert await replay(stage.events) == stage.events


async def test_a_compaction_of_a_child_starts_no_hook_of_the_session(stage: Stage) -> None:
    talker = make_talker(14)

    def answer(request: Request) -> Answer:
        if "CHILD" in join_request(request):
            return talker(request)
        return "end" if request.turn else [call("task", prompt="CHILD", agent="general")]

    stage.write_files(40)
    hook = StartHook()
    async with stage.open(
        answer, integrations=Integrations(hooks={"SessionStart": [hook]})
    ) as session:
        await session.run("Let a child read.")
    assert [each.run for each in stage.compactions] == ["1.1.1"]
    assert hook.list_sources() == ["startup"]
