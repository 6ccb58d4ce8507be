"""A session never dies of its own history: whatever went wrong before, the next prompt works.

Sessions go through accidents at each position of a turn: before the first answer, after one tool
result, after two. After each accident the next prompt must be accepted by a server that checks
conversations as strictly as the real ones do. First every kind of accident with every wire alone,
then all of them mixed, with words of the user in between, in sessions that change their model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from mudroom import Reason, Session, ThinkingBlock, ToolCallBlock
from mudroom._core.events import AnyEvent, RunStarted
from mudroom._core.messages import StopReason
from mudroom.testing import MemoryStore
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import (
    Check,
    find_deepseek_refusals,
    find_mistral_refusals,
    strict_script,
)

from ..long_form import count_examples
from .providers import MODELS, open_session


def find_template_refusals(request: ServerRequest) -> list[str]:
    """Return what the chat templates of some local servers refuse."""
    pairs = set(pairwise(message["role"] for message in request.messages))
    text = "Conversation roles must alternate user/assistant/user/assistant/..."
    return [text] if pairs & {("user", "user"), ("tool", "user")} else []


CALL = (ToolCallBlock("call_one_that_is_long", "todo", {"todos": []}),)
WIRES: dict[str, tuple[str, tuple[Check, ...]]] = {
    **{wire: (model, ()) for wire, model in MODELS.items()},
    "mistral": ("mistral:mistral-large-4", (find_mistral_refusals,)),
    "deepseek": ("deepseek:deepseek-v4-pro", (find_deepseek_refusals,)),
    # These hosts have no row of their own: the first refusal teaches.
    "a server like mistral": ("openai:m", (find_mistral_refusals,)),
    "a server like deepseek": ("openai:n", (find_deepseek_refusals,)),
    "a server with a template": ("openai:o", (find_template_refusals,)),
}
ACCIDENTS: dict[str, ServerAnswer] = {
    "a refusal": Fault(status=400, body=b'{"error": {"message": "no"}}'),
    "an empty account": Fault(status=402, body=b'{"error": {"message": "Insufficient balance"}}'),
    "a lost connection": Fault("half an answer", cut_after=120),
    "an empty answer": (),
    "thinking without an answer": (ThinkingBlock("hm", "sig"),),
    "a cut answer": Fault("half an", stop_reason=StopReason.LENGTH),
    "a cut call": Fault(CALL, stop_reason=StopReason.LENGTH),
    "a stopped answer": Fault("half an", stop_reason=StopReason.OTHER),
    "a refused answer": Fault("", stop_reason=StopReason.REFUSAL),
    "a call of no tool": (ToolCallBlock("x", "no_such_tool", {}),),
    "a cancel": Fault("slow", delay=3600.0),
}
POSITIONS = range(3)


REFUSAL = Fault(status=402, body=b'{"error": {"message": "Insufficient balance"}}')


class Accident:
    """A server that calls a tool some times, has an accident, and then works again.

    Attributes:
        speak: called while the run waits for an answer with a call.
        leaves: the model that refuses all requests from the accident on; its fallback answers.
    """

    def __init__(self) -> None:
        self.accident: ServerAnswer = ""
        self.calls_left = 0
        self.is_due = False
        self.is_over = asyncio.Event()
        self.calls = 0
        self.speak: Callable[[], object] = lambda: None
        self.leaves = ""

    def start(self, position: int, accident: ServerAnswer) -> None:
        self.accident = accident
        self.calls_left = position
        self.is_due = True
        self.is_over.clear()

    def answer(self, request: ServerRequest) -> ServerAnswer:
        if self.leaves and not self.calls_left and request.model == self.leaves:
            self.is_over.set()
            return REFUSAL
        if not self.is_due:
            return "Done."
        if self.calls_left:
            self.calls_left -= 1
            self.calls += 1
            self.speak()
            return (ToolCallBlock(f"call_{self.calls:030}", "todo", {"todos": []}),)
        self.is_over.set()
        return self.accident

    async def happen(self, session: Session, prompt: str) -> str:
        """Let a prompt meet the accident; return what is wrong with the prompt after it."""
        running = asyncio.create_task(session.run(prompt))
        over = asyncio.create_task(self.is_over.wait())
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if isinstance(self.accident, Fault) and self.accident.delay and not self.leaves:
            running.cancel()
        else:
            await asyncio.wait([running], timeout=4000)
        self.is_due = False
        await asyncio.gather(running, return_exceptions=True)
        report = await session.run("Go on.")
        is_well = report.reason is Reason.GOAL and report.text == "Done."
        return "" if is_well else f"{prompt} {report.reason} {report.error}"


async def live_through(folder: Path, wire: str, accident: ServerAnswer) -> list[str]:
    """Return what went wrong with the prompts after each accident."""
    model, checks = WIRES[wire]
    server_script = Accident()
    faults: list[str] = []
    async with ModelServer(strict_script(server_script.answer, *checks)) as server:
        async with open_session(folder, server, model) as session:
            for position in POSITIONS:
                server_script.start(position, accident)
                faults.append(await server_script.happen(session, f"After {position} calls."))
    return [fault for fault in faults if fault]


@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_session_never_dies_of_its_own_history(tmp_path: Path, wire: str, accident: str) -> None:
    assert run_virtual(live_through(tmp_path, wire, ACCIDENTS[accident])) == []


@pytest.mark.parametrize(
    ("wire", "change"),
    [
        (wire, other)
        for wire in ("mistral", "deepseek", "a server like deepseek")
        for other in ("anthropic", "openai-responses", "google")
    ],
)
def test_a_session_continues_with_a_stricter_model(tmp_path: Path, wire: str, change: str) -> None:
    model, checks = WIRES[wire]

    def answer(request: ServerRequest) -> ServerAnswer:
        if request.dialect != "openai" and request.turn:
            return REFUSAL
        return "Done." if request.turn else CALL

    def check(request: ServerRequest) -> list[str]:
        is_strict = request.dialect == "openai"
        return [reason for each in checks for reason in each(request)] if is_strict else []

    async def work() -> str:
        async with ModelServer(strict_script(answer, check)) as server:
            models = f"{WIRES[change][0]},{model}"
            async with open_session(tmp_path, server, models) as session:
                report = await session.run("Begin.")
        return f"{report.reason} {report.text} {report.error}".strip()

    assert run_virtual(work()) == "GOAL Done."


class Step(Struct, frozen=True):
    """A prompt that meets an accident.

    Arguments:
        wire: the model of the session from here on, unless `fallback` replaces it.
        fallback: takes over at the position of the accident, which then does not happen; "" for
            none.
        is_spoken_to: the user's words arrive with each tool call.
    """

    wire: str
    position: int
    accident: str
    fallback: str
    is_spoken_to: bool


steps = st.builds(
    Step,
    st.sampled_from(sorted(WIRES)),
    st.sampled_from(POSITIONS),
    st.sampled_from(sorted(ACCIDENTS)),
    st.sampled_from(["", "", *sorted(WIRES)]),
    st.booleans(),
)
CHECKS = {model.partition(":")[2]: checks for model, checks in WIRES.values()}


def check_model(request: ServerRequest) -> list[str]:
    """Check a request as strictly as its model does."""
    return [reason for check in CHECKS[request.model] for reason in check(request)]


async def live(folder: Path, life: list[Step]) -> list[str]:
    """Return what went wrong in a session that is resumed for each step."""
    script = Accident()
    store = MemoryStore()
    faults: list[str] = []
    resume = ""
    async with ModelServer(strict_script(script.answer, check_model)) as server:
        for step in life:
            model = WIRES[step.wire][0]
            is_replaced = step.fallback not in ("", step.wire)
            script.leaves = model.partition(":")[2] if is_replaced else ""
            models = f"{model},{WIRES[step.fallback][0]}" if is_replaced else model
            options: dict[str, Any] = {"store": store, "resume": resume, "journal": "sqlite"}
            async with open_session(folder, server, models, **options) as session:
                resume = session.id
                started: list[str] = []

                def note_run(event: AnyEvent, started: list[str] = started) -> None:
                    if isinstance(event, RunStarted):
                        started.append(event.run)

                def speak(session: Session = session, started: list[str] = started) -> None:
                    session.runs.send(started[-1], "And mind the gap.")

                session.watch(note_run)
                script.speak = speak if step.is_spoken_to else lambda: None
                script.start(step.position, "Done." if is_replaced else ACCIDENTS[step.accident])
                faults.append(await script.happen(session, f"{step}"))
    return [fault for fault in faults if fault]


@given(st.lists(steps, min_size=2, max_size=5))
@settings(max_examples=count_examples(20, 300), deadline=None)
def test_a_session_survives_any_mixture_of_accidents_words_and_changes_of_model(
    tmp_path_factory: pytest.TempPathFactory, life: list[Step]
) -> None:
    assert run_virtual(live(tmp_path_factory.mktemp("life"), life)) == []
