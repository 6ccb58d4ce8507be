"""The next step as a pure function of the message list: replay the plan over the results so far, and see what it wants next."""

from __future__ import annotations

import zlib

from msgspec import Struct

from mudroom._core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mudroom._core.ports import RequestConfig

from .intents import chinese, understand
from .plan import Ask, Beyond, Cut, Means, Outcome, Plan, Request, Tongue
from .recap import recap, wants_recap
from .replies import abilities, combine, cut_short, left_out
from .routes import begin

_PARTS = 20


class Reply(Struct, frozen=True):
    """What to answer: words, or calls."""

    text: str = ""
    calls: tuple[ToolCallBlock, ...] = ()


def reply(setup: RequestConfig, messages: list[Message], *, calls: bool = True) -> Reply:
    """The next answer of the conversation; with `calls` False, words only.

    Raises Beyond with a text for the questioner when nothing asked for is understood.
    """
    if wants_recap(messages):
        return Reply(text=recap(messages))
    prompt, answers = _split(messages)
    say = Tongue(chinese(prompt))
    means = Means(frozenset(tool.name for tool in setup.tools), say, _reader(setup))
    requests, foreign = understand(prompt)
    if not requests:
        raise Beyond(abilities(say))
    plan = _in_order(requests, foreign, means)
    step = _replay(plan, answers)
    if isinstance(step, str):
        return Reply(text=step)
    if not calls:
        return Reply(text=_wrap_up(plan, say))
    return Reply(calls=_numbered(step, messages, prompt))


def _in_order(requests: list[Request], foreign: list[str], means: Means) -> Plan:
    parts: list[str] = []
    refused: list[str] = []
    for request in requests:
        try:
            parts.append((yield from begin(request, means)))
        except Beyond as beyond:
            refused.append(str(beyond))
        except Cut:
            return combine([*parts, cut_short(means.say)])
    if not parts:
        raise Beyond("\n".join(refused))
    return combine([*parts, *refused, *left_out(foreign, means.say)])


def _replay(plan: Plan, answers: list[list[Outcome]]) -> list[Ask] | str:
    """Run the plan over the outcomes so far; its next calls, or its final words."""
    try:
        step = next(plan)
        for outcomes in answers:
            step = plan.send(_matched(step, outcomes))
        while not step:
            step = plan.send([])
    except StopIteration as end:
        return end.value
    return step


def _wrap_up(plan: Plan, say: Tongue) -> str:
    """The words of a plan that gets no further call; each of its parts is cut in turn."""
    for _ in range(_PARTS):
        try:
            plan.throw(Cut())
        except StopIteration as end:
            return end.value
    return cut_short(say)


def _matched(step: list[Ask], outcomes: list[Outcome]) -> list[Outcome]:
    """One outcome for each call, also when the record lacks some."""
    missing = [Outcome("no result", error=True)] * (len(step) - len(outcomes))
    return [*outcomes, *missing][: len(step)]


def _split(messages: list[Message]) -> tuple[str, list[list[Outcome]]]:
    """The newest prompt, and the outcomes of each turn since then. A word said beside results is a note, not a prompt."""
    words: list[str] = []
    answers: list[list[Outcome]] = []
    asked: tuple[str, ...] = ()
    for message in messages:
        if isinstance(message, AssistantMessage):
            asked = tuple(c.id for c in message.tool_calls)
            if asked:
                answers.append([])
            else:
                words, answers = [], []
            continue
        results = {b.call_id: b for b in message.content if isinstance(b, ToolResultBlock)}
        if results and answers:
            answers[-1] = [_outcome(results.get(name)) for name in asked]
        elif not answers:
            words += [b.text for b in message.content if isinstance(b, TextBlock)]
    return "\n".join(words), answers


def _outcome(result: ToolResultBlock | None) -> Outcome:
    return Outcome(result.text, result.error) if result else Outcome("no result", error=True)


def _numbered(step: list[Ask], messages: list[Message], prompt: str) -> tuple[ToolCallBlock, ...]:
    """Calls with ids that are unique in the conversation, and differ between conversations with different prompts."""
    before = sum(len(m.tool_calls) for m in messages if isinstance(m, AssistantMessage))
    mark = zlib.crc32(prompt.encode())
    return tuple(
        ToolCallBlock(f"off_{mark:08x}_{before + n}", ask.name, ask.arguments)
        for n, ask in enumerate(step, 1)
    )


def _reader(setup: RequestConfig) -> str:
    """The read-only agent, when the task tool's own text offers it."""
    task = next((tool for tool in setup.tools if tool.name == "task"), None)
    offered = (
        task is not None
        and "agent" in task.parameters.get("properties", {})
        and "explore" in f"{task.description} {task.parameters}"
    )
    return "explore" if offered else ""


def size(message: Message) -> int:
    """Characters of a message: what its tokens are counted from."""
    total = 0
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            total += len(block.name) + len(str(block.arguments))
        else:
            total += len(block.text)
    return total
