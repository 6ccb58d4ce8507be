"""PromptLoop: the user's lines as the driver's prompts, with a result line per turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mudroom import ImageBlock, Reason, Report, TextBlock
from mudroom.driving import Turn
from mudroom.errors import JournalError, MudroomError, UsageError

from ..file_prompts import FilePrompt, fill_file_prompt, find_file_prompt
from ..json_values import as_bytes, as_list, as_object, as_text
from .hosted_session import HostedSession
from .output import HostOutput


class UserLine(Struct, frozen=True, kw_only=True):
    blocks: tuple[TextBlock | ImageBlock, ...] = ()
    uuid: str = ""  # given by the host
    waits: bool = False  # for the end of the running prompt
    starts_turn: bool = True  # False for context sent along with the next line
    raw: Mapping[str, Any]
    error: str = ""  # why the line cannot be sent to a model

    @property
    def text(self) -> str:
        """The text of the line; "" if it has an image."""
        texts = [block.text for block in self.blocks if isinstance(block, TextBlock)]
        return "\n\n".join(texts) if len(texts) == len(self.blocks) else ""

    @property
    def prompt(self) -> str | tuple[TextBlock | ImageBlock, ...]:
        return self.text or self.blocks


def parse_user_line(line: Mapping[str, Any]) -> UserLine:
    uuid = str(line.get("uuid") or "")
    try:
        blocks = _parse_content(as_object(line.get("message")).get("content"))
    except UsageError as error:
        return UserLine(uuid=uuid, raw=line, error=str(error))
    return UserLine(
        blocks=blocks,
        uuid=uuid,
        waits=line.get("priority") == "later",
        starts_turn=line.get("shouldQuery") is not False,
        raw=line,
    )


def _parse_content(content: object) -> tuple[TextBlock | ImageBlock, ...]:
    text = as_text(content)
    blocks = [{"type": "text", "text": text}] if text else as_list(content)
    if not blocks:
        raise UsageError("the line of the user has no message with a content")
    return tuple(map(_parse_block, blocks))


def _parse_block(block: object) -> TextBlock | ImageBlock:
    value = as_object(block)
    kind = value.get("type")
    if kind == "text":
        return TextBlock(str(value.get("text", "")))
    if kind == "image":
        return _parse_image(as_object(value.get("source")))
    raise UsageError(
        f"a model gets no content of type {kind} here", remedy="Send text, or images as base64."
    )


def _parse_image(source: Mapping[str, Any]) -> ImageBlock:
    data = as_bytes(source.get("data"))
    if source.get("type") != "base64" or not data:
        raise UsageError("an image is not in base64", remedy="Send its bytes as base64.")
    return ImageBlock(str(source.get("media_type", "")), data)


class PromptLoop:
    """The prompts of one host.

    A line that arrives during a prompt becomes a message to its run. It waits for the next turn if
    it has an image, calls a prompt file, or says so.
    """

    def __init__(
        self, hosted: HostedSession, output: HostOutput, *, keeps_background: bool
    ) -> None:
        self._hosted = hosted
        self._driver = hosted.driver
        self._output = output
        self._keeps_background = keeps_background
        self._has_ended = asyncio.Event()
        self._failure: Exception | None = None
        self._uuids: list[str] = []
        self._context: list[TextBlock | ImageBlock] = []

    def add(self, line: UserLine) -> None:
        if not line.starts_turn:
            self._context.extend(line.blocks)
            return
        self._output.send_user(line.raw)
        if not self._send_to_run(line):
            self._driver.submit(lambda turn: self._run_line(turn, line), key=line.uuid or None)

    def end(self) -> None:
        """End the loop after the waiting lines."""
        self._has_ended.set()

    def interrupt(self, *, cancels_waiting: bool = False) -> dict[str, list[str]]:
        """Stop the turn; return the ids of lines still waiting, and of those that are not."""
        waiting = [turn.key for turn in self._driver.waiting if turn.key]
        self._driver.interrupt(keeps_background=self._keeps_background)
        if not cancels_waiting:
            return {"still_queued": waiting}
        self._driver.withdraw()
        return {"still_queued": [], "cancelled": waiting}

    def cancel_line(self, uuid: str) -> bool:
        """Remove a waiting line. Return False if none has this id."""
        return bool(uuid and self._driver.withdraw(uuid))

    async def run(self) -> None:
        """Run the lines until `end`. Raises JournalError."""
        if not (self._driver.current or self._driver.waiting):
            self._output.set_state("idle")
        await self._has_ended.wait()
        await self._driver.drain()
        if self._failure:
            raise self._failure

    async def _run_line(self, turn: Turn[Any], line: UserLine) -> None:
        self._uuids = [line.uuid] if line.uuid else []
        try:
            report = await self._run_prompt(turn, line)
        except MudroomError as error:
            report = Report[Any](text="", reason=Reason.ERROR, run_id="", error=str(error))
            if isinstance(error, JournalError):
                self._fail(error)
        except Exception as error:  # noqa: BLE001  (`run` raises it)
            self._fail(error)
            return
        has_value = self._hosted.outputs is not None
        self._output.send_result(report, self._uuids, has_value=has_value)
        if not self._driver.waiting:
            self._output.set_state("idle")

    def _fail(self, error: Exception) -> None:
        """End the loop: no later line could be recorded."""
        self._failure = error
        self._driver.withdraw()
        self._has_ended.set()

    async def _run_prompt(self, turn: Turn[Any], line: UserLine) -> Report[Any]:
        if line.error:
            raise UsageError(line.error)
        session = await turn.open()
        await self._hosted.settle()
        self._output.set_state("running")
        prompts = self._hosted.load_prompts()
        self._output.send_init(session.permissions.mode.value, prompts)
        line = _fill_line(line, prompts)
        prompt = (*self._context, *line.blocks) if self._context else line.prompt
        self._context.clear()
        self._hosted.begin_prompt()
        report = await turn.run(prompt, outputs=self._hosted.outputs)
        return report or Report[Any](text="", reason=Reason.CANCELLED, run_id="")

    def _send_to_run(self, line: UserLine) -> bool:
        """Send a line to the active run. Return False if it must wait."""
        turn = self._driver.current
        if turn is None or not (turn.run_id and line.text) or line.waits or self._driver.waiting:
            return False
        if line.text.startswith("/") and find_file_prompt(line.text, self._hosted.load_prompts()):
            return False
        if not self._driver.session.runs.send(turn.run_id, line.text):
            return False
        if line.uuid:
            self._uuids.append(line.uuid)
        return True


def _fill_line(line: UserLine, prompts: Mapping[str, FilePrompt]) -> UserLine:
    if not (line.blocks and isinstance(first := line.blocks[0], TextBlock)):
        return line
    text = fill_file_prompt(first.text, prompts)
    return replace(line, blocks=(TextBlock(text), *line.blocks[1:]))
