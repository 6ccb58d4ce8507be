"""What callers ask of a session: prompts, outputs, and how they get their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from .._adapters.tools._image_files import MAX_IMAGE_BYTES, MAX_PIXELS_PER_SIDE, parse_image
from .._core.agents import Agent
from .._core.events import AnyEvent
from .._core.json_values import clean_text
from .._core.messages import ImageBlock, TextBlock
from .._core.ports import RunHandle
from .._core.runs import Brief, Reason, Report, find_root_id
from .._core.runs import T as Outputs
from .._core.type_checks import check_type
from .._engine.structured_output import OutputType, parse_output_type
from ..errors import JournalError, UsageError

# A prompt: text, or blocks of text and images in order.
Prompt = str | Sequence[TextBlock | ImageBlock]

_REMEDY = "Write what the agent should do."


class PromptContent(Struct, frozen=True):
    """A checked prompt. Its text has a placeholder for each image."""

    text: str
    blocks: tuple[TextBlock | ImageBlock, ...] = ()


def parse_prompt(prompt: object, where: str = "") -> PromptContent:
    """Check a prompt and its images; replace characters that cannot be stored."""
    if isinstance(prompt, str):
        content = PromptContent(clean_text(prompt))
    elif isinstance(prompt, Sequence) and not isinstance(prompt, bytes):
        items = cast("Sequence[object]", prompt)
        blocks = tuple(_parse_block(block, number, where) for number, block in enumerate(items, 1))
        texts = (each.text if isinstance(each, TextBlock) else each.placeholder for each in blocks)
        content = PromptContent("\n\n".join(texts), blocks)
    else:
        kind = type(prompt).__name__
        raise UsageError(f"the prompt is not a text but a {kind}", where=where, remedy=_REMEDY)
    if not content.text.strip():
        raise UsageError("the prompt is empty", where=where, remedy=_REMEDY)
    return content


def parse_prompts(prompts: Iterable[Prompt]) -> list[PromptContent]:
    """Parse the prompts of several tasks. Raises UsageError at the first unusable one."""
    # A string is also iterable, and each character would become a task.
    if isinstance(prompts, str):
        raise UsageError("map takes several prompts, not one text", remedy="Use `task`.")
    check_type("prompts", prompts, Iterable, "map")
    return [parse_prompt(prompt, f"prompt {number}") for number, prompt in enumerate(prompts, 1)]


def _parse_block(block: object, number: int, where: str) -> TextBlock | ImageBlock:
    if isinstance(block, TextBlock):
        return TextBlock(clean_text(block.text))
    if not isinstance(block, ImageBlock):
        raise UsageError(
            f"block {number} of the prompt is a {type(block).__name__}",
            where=where,
            remedy="Use TextBlock and ImageBlock.",
        )
    image = parse_image(block.data)
    if image is None:
        raise UsageError(
            f"block {number} of the prompt is not a complete PNG, JPEG, GIF or WebP image",
            where=where,
            remedy="Pass the bytes of the whole image file.",
        )
    if len(image.data) > MAX_IMAGE_BYTES or max(image.width, image.height) > MAX_PIXELS_PER_SIDE:
        raise UsageError(
            f"block {number} of the prompt is too large: {image.placeholder}",
            where=where,
            remedy=f"Scale it down to {MAX_IMAGE_BYTES:,} bytes and {MAX_PIXELS_PER_SIDE:,} pixels "
            "per side.",
        )
    return image


# The values a run must emit: a type, name -> description, or a JSON Schema. None for none.
OutputSpec = type[Outputs] | Mapping[str, Any] | None


class RunRequest(Struct, frozen=True):
    """A caller's request for a run, made before the run waits to start.

    Arguments:
        stop_count: calls of `cancel_all`, and of `interrupt` for a prompt, so far; a later call
            cancels the run.
        watcher: called with each event of the run and of the runs below it.
        is_prompt: true for a run of the conversation.
    """

    stop_count: int
    output_type: OutputType[Any] | None = None
    watcher: Callable[[AnyEvent], None] | None = None
    is_prompt: bool = False


class InterruptedPrompt(Struct, frozen=True):
    """An interrupted prompt. `ending` waits for its end, then adds its run."""

    brief: Brief
    handle: RunHandle
    ending: asyncio.Task[None]


def add_outputs(agent: Agent, requested: OutputSpec[Any]) -> tuple[Agent, OutputType[Any] | None]:
    if requested is None:
        return agent, None
    output_type = parse_output_type(requested)
    return replace(agent, outputs=output_type.outputs), output_type


def convert_report(report: Report, output_type: OutputType[Any] | None) -> Report[Any]:
    return output_type.convert_report(report) if output_type else report


def filter_events(run_id: str, watcher: Callable[[AnyEvent], None]) -> Callable[[AnyEvent], None]:
    def watch(event: AnyEvent) -> None:
        if find_root_id(event.run) == run_id:
            watcher(event)

    return watch


def to_report(result: Report[Any] | BaseException, brief: Brief) -> Report[Any]:
    """Return a task's report; an exception becomes one with reason ERROR.

    Raises JournalError, and exceptions that stop the program.
    """
    if isinstance(result, Report):
        return result
    if isinstance(result, JournalError) or not isinstance(result, Exception):
        raise result
    return Report(
        text="",
        reason=Reason.ERROR,
        run_id=brief.run_id,
        agent=brief.agent.name,
        model=brief.model,
        error=f"{type(result).__name__}: {result}",
        outputs=dict[str, Any](),
    )
