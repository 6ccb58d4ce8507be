"""Messages that cannot be handled: the run gets the error, or another worker process."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason
from mudroom._adapters.models.scripted import (
    Answer,
    Request,
    ScriptedConversation,
    ScriptedModel,
    call,
)
from mudroom._adapters.workers.process import ProcessConnection
from mudroom._core.events import ToolCallFinished
from mudroom._core.messages import Message
from mudroom._core.ports import RequestConfig

from ..worker_kinds import open_session
from .far_place import get_worker


def answer(request: Request) -> Answer:
    """Answer as a parent, or as its child."""
    if request.prompt == "PARENT":
        return request.results[0].text if request.turn else call("task", prompt="CHILD")
    return "child done" if request.turn else call("bash", command="echo 1 >> log")


class PickyModel(ScriptedModel):
    """Model whose second conversation cannot start."""

    starts = 0

    def start_conversation(self, config: RequestConfig) -> ScriptedConversation:
        self.starts += 1
        if self.starts > 1:
            raise ValueError("this model has no temperature")
        return super().start_conversation(config)


class PickyConversation(ScriptedConversation):
    """Conversation that takes no message."""

    def append(self, message: Message) -> None:
        raise ValueError("this model takes no images")


class DeafModel(PickyModel):
    """Model whose second conversation takes no message."""

    def start_conversation(self, config: RequestConfig) -> ScriptedConversation:
        self.starts += 1
        return (
            PickyConversation(self, config)
            if self.starts > 1
            else ScriptedConversation(self, config)
        )


@pytest.mark.parametrize("worker", ["local", "process:1"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [(PickyModel, "this model has no temperature"), (DeafModel, "this model takes no images")],
)
@pytest.mark.timeout(60)
async def test_the_parent_reads_the_error_of_a_model_that_refuses_a_conversation(
    kind: type[PickyModel], text: str, worker: str, tmp_path: Path
) -> None:
    async with open_session(tmp_path, kind(answer), worker) as session:
        report = await session.run("PARENT")
    assert report.reason is Reason.GOAL
    assert f"ValueError: {text}" in report.text


@pytest.mark.timeout(60)
async def test_a_run_goes_on_elsewhere_when_its_process_sends_what_is_no_message(
    tmp_path: Path,
) -> None:
    async with open_session(tmp_path, ScriptedModel(answer)) as session:
        worker = get_worker(session)
        broken: list[int | None] = []

        def watch(event: AnyEvent) -> None:
            if isinstance(event, ToolCallFinished) and event.run == "1.1.1":
                process = worker._pool.processes[0]
                broken.append(process.pid)
                connection = process._connection
                assert isinstance(connection, ProcessConnection) and connection._link
                connection._link.data_received(b"\x00\x00\x00\x01\xc1")

        session.watch(watch)
        report = await session.run("PARENT")
        assert worker.pids != tuple(broken)
    assert report.text.startswith("child done")
    assert len(broken) == 1
    assert (tmp_path / "log").read_text() == "1\n"
