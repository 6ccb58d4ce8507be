"""A session never dies of its own history: whatever went wrong before, the next prompt works.

Each session goes through one kind of accident at each position of a turn: before the first answer,
after one tool result, after two. After each accident the next prompt must be accepted by a server
that checks conversations as strictly as the real ones do.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mudroom import Reason, Session, ThinkingBlock, ToolCallBlock
from mudroom._core.messages import StopReason
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import (
    Check,
    find_deepseek_refusals,
    find_mistral_refusals,
    strict_script,
)

CALL = (ToolCallBlock("call_one_that_is_long", "todo", {"todos": []}),)
WIRES: dict[str, tuple[str, tuple[Check, ...]]] = {
    "anthropic": ("anthropic:claude-sonnet-4-5", ()),
    "openai": ("openai:gpt-5", ()),
    "openai-responses": ("openai-responses:gpt-5", ()),
    "google": ("google:gemini-flash-latest", ()),
    "ollama": ("ollama:qwen3:8b", ()),
    "mistral": ("mistral:mistral-large-4", (find_mistral_refusals,)),
    "deepseek": ("deepseek:deepseek-v4-pro", (find_deepseek_refusals,)),
    # These hosts have no row of their own: the first refusal teaches.
    "a server like mistral": ("openai:m", (find_mistral_refusals,)),
    "a server like deepseek": ("openai:n", (find_deepseek_refusals,)),
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


class Accident:
    """A server that calls a tool some times, has an accident, and then works again."""

    def __init__(self, answer: ServerAnswer) -> None:
        self.accident = answer
        self.calls_left = 0
        self.is_due = False
        self.is_over = asyncio.Event()
        self.calls = 0

    def start(self, position: int) -> None:
        self.calls_left = position
        self.is_due = True
        self.is_over.clear()

    def answer(self, request: ServerRequest) -> ServerAnswer:
        if not self.is_due:
            return "Done."
        if self.calls_left:
            self.calls_left -= 1
            self.calls += 1
            return (ToolCallBlock(f"call_{self.calls:030}", "todo", {"todos": []}),)
        self.is_over.set()
        return self.accident


def make_environ(url: str) -> dict[str, str]:
    bases = {"ANTHROPIC": url, "OLLAMA": url, "GEMINI": f"{url}/v1beta"}
    bases |= dict.fromkeys(("OPENAI", "MISTRAL", "DEEPSEEK"), f"{url}/v1")
    return {f"{name}_API_KEY": "k" for name in bases} | {
        f"{name}_BASE_URL": at for name, at in bases.items()
    }


async def live_through(folder: Path, wire: str, accident: ServerAnswer) -> list[str]:
    """Return what went wrong with the prompts after each accident."""
    model, checks = WIRES[wire]
    server_script = Accident(accident)
    faults: list[str] = []
    async with ModelServer(strict_script(server_script.answer, *checks)) as server:
        async with Session(
            model=model,
            environ=make_environ(server.url),
            cwd=str(folder),
            home=str(folder / "home"),
            journal="memory",
        ) as session:
            for position in POSITIONS:
                server_script.start(position)
                running = asyncio.create_task(session.run(f"Prompt {position}."))
                over = asyncio.create_task(server_script.is_over.wait())
                await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                if isinstance(accident, Fault) and accident.delay:
                    running.cancel()
                else:
                    await asyncio.wait([running], timeout=4000)
                server_script.is_due = False
                await asyncio.gather(running, return_exceptions=True)
                report = await session.run("Go on.")
                if report.reason is not Reason.GOAL or report.text != "Done.":
                    faults.append(f"after {position} calls: {report.reason} {report.error}")
    return faults


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
            return Fault(status=402, body=b'{"error": {"message": "Insufficient balance"}}')
        return "Done." if request.turn else CALL

    def check(request: ServerRequest) -> list[str]:
        is_strict = request.dialect == "openai"
        return [reason for each in checks for reason in each(request)] if is_strict else []

    async def work() -> str:
        async with ModelServer(strict_script(answer, check)) as server:
            async with Session(
                model=f"{WIRES[change][0]},{model}",
                environ=make_environ(server.url),
                cwd=str(tmp_path),
                home=str(tmp_path / "home"),
                journal="memory",
            ) as session:
                report = await session.run("Begin.")
        return f"{report.reason} {report.text} {report.error}".strip()

    assert run_virtual(work()) == "GOAL Done."
