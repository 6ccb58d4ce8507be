"""EditorSession: one session of the editor: its prompts, its choices, its updates."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from ..._core.agents import Mode
from ..._core.events import StoredEvent
from ..._core.messages import ImageBlock, TextBlock
from ..._core.runs import Report
from ..._core.tools import Tool
from ..._engine.changes.versions import FileVersions, find_versions_folder
from ..._projections.engine_text import quote, wrap
from ..._session.prompts import Prompt
from ...errors import MudroomError, UnknownName, UsageError
from ..file_prompts import FilePrompt, fill_file_prompt
from .approver import EditorApprover
from .connection import Connection
from .errors import INVALID_PARAMS, RequestError
from .params import ClientAbilities
from .setup import CommandLine, PlannedSession, ServerCommand, SessionPlan
from .stop_reasons import make_prompt_end
from .updates import SessionUpdates

CANCELLED = {"stopReason": "cancelled"}


class EditorSession:
    """One conversation. It is opened again when the user chooses another mode or model.

    Arguments:
        notify: takes a line for stderr.
    """

    def __init__(
        self,
        connection: Connection,
        command_line: CommandLine,
        plan: SessionPlan,
        abilities: ClientAbilities,
        notify: Callable[[str], object],
    ) -> None:
        self._connection = connection
        self._command_line = command_line
        self._abilities = abilities
        self._notify = notify
        if command_line.reads_unsaved:
            plan = replace(plan, tools=self._make_tools(connection))
        self._plan = plan
        self._opened_plan = plan
        self._approver = EditorApprover(connection.request, abilities, notify)
        self._stack = AsyncExitStack()
        self._planned: PlannedSession | None = None
        self._updates: SessionUpdates | None = None
        self._prompts: dict[str, FilePrompt] = {}
        self._server_commands: tuple[ServerCommand, ...] = ()
        self._fetching: asyncio.Future[str | None] | None = None
        self._lock = asyncio.Lock()
        self._stop_count = 0
        self.is_busy = False

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._get_planned().session.id

    async def open(self, *, shows_history: bool = False) -> None:
        """Open the session. Raises UsageError, JournalError, RequestError.

        Arguments:
            shows_history: send what the record of the session has.
        """
        planned = self._command_line.prepare(self._plan, self._approver)
        history: list[StoredEvent] = []
        if self._updates is None and self._plan.resume:
            planned.session.watch_history(history.append)
        session = await self._stack.enter_async_context(planned.session)
        self._planned = planned
        self._opened_plan = self._plan
        for notice in session.notices:
            self._notify(notice)
        if self._updates is None:
            self._updates = self._make_updates(planned)
            self._load_history(self._updates, history, is_shown=shows_history)
        self._approver.start_session(
            self._updates,
            planned.permissions,
            session=session.id,
            cwd=session.cwd,
            home=planned.home,
            user_home=planned.user_home,
            tier=session.sandbox.tier,
        )
        session.watch(self._updates.apply)

    def describe(self) -> dict[str, Any]:
        """Return the modes and options with their values."""
        mode = self._approver.mode
        return {"modes": make_modes(mode), "configOptions": self.list_options()}

    def list_options(self) -> list[dict[str, Any]]:
        """Return the options with their values."""
        model = self._plan.model or self._get_planned().session.model
        return make_options(self._approver.mode, model, self._command_line.list_models())

    async def send_commands(self) -> None:
        """Send the prompts of files and of MCP servers as commands of the editor."""
        session = self._get_planned().session
        prompts = await asyncio.to_thread(self._command_line.load_prompts, session)
        self._prompts = {prompt.name: prompt for prompt in prompts}
        commands: list[dict[str, Any]] = [
            {
                "name": prompt.name,
                "description": prompt.description or prompt.name,
                "input": {"hint": prompt.hint or "arguments"},
            }
            for prompt in prompts
        ]
        self._server_commands = tuple(self._command_line.list_server_prompts(session))
        for command in self._server_commands:
            hint = {"input": {"hint": command.hint}} if command.hint else {}
            description = command.description or command.name
            commands.append({"name": command.name, "description": description, **hint})
        self._send(
            self.id, {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        )

    def begin_prompt(self) -> int:
        """Return a number that `run` takes: a cancel after this call stops the prompt."""
        return self._stop_count

    async def run(self, begun: int, blocks: Sequence[Block]) -> dict[str, Any]:
        """Run a prompt after those before it, and return the answer to the client.

        Raises RequestError, MudroomError.
        """
        async with self._lock:
            self.is_busy = True
            try:
                if self._stop_count != begun:
                    return CANCELLED
                await self.apply_changes()
                blocks = await self._fill_server_prompt(begun, blocks)
                prompt = parse_prompt(blocks, self._prompts)
                report = await self._run_prompt(begun, prompt)
                if self._server_commands != tuple(self._list_server_commands()):
                    await self.send_commands()
            finally:
                self.is_busy = False
        if report is None or self._stop_count != begun:
            meta = {"_meta": {"mudroom": {"reason": report.reason.value}}} if report else {}
            return CANCELLED | meta
        assert self._updates
        return make_prompt_end(report, self._updates.usage.stop)

    def _list_server_commands(self) -> Sequence[ServerCommand]:
        return self._command_line.list_server_prompts(self._get_planned().session)

    async def _fill_server_prompt(self, begun: int, blocks: Sequence[Block]) -> Sequence[Block]:
        """Return the blocks with the text of the MCP server's prompt that they call.

        A cancel of the client ends the wait for the server. Raises MudroomError.
        """
        line = str(blocks[0].get("text", "")).strip() if blocks else ""
        name, _, words = line.partition(" ")
        if not name.startswith("/"):
            return blocks
        session = self._get_planned().session
        fetch = self._command_line.fetch_server_prompt(session, name, words.strip())
        self._fetching = asyncio.ensure_future(fetch)
        try:
            text = await self._fetching
        except asyncio.CancelledError:
            if self._stop_count == begun:  # not the prompt, but this task is cancelled
                raise
            return blocks
        finally:
            self._fetching = None
        return blocks if text is None else [{"type": "text", "text": text}, *blocks[1:]]

    async def _run_prompt(self, begun: int, prompt: Prompt) -> Report | None:
        """Return the report, None if the prompt was stopped before. A cancel stops the prompt."""
        session = self._get_planned().session

        async def work() -> Report | None:
            return await session.run(prompt) if self._stop_count == begun else None

        running = asyncio.create_task(work())
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.cancel()
            return await running

    def cancel(self) -> None:
        """Stop the prompts that the client has sent, and all their children."""
        self._stop_count += 1
        if self._fetching:
            self._fetching.cancel()
        try:
            self._get_planned().session.cancel()
        except UsageError:
            return  # it is being opened again, and the next prompt sees the count

    def pause(self) -> None:
        """Stop all work so that a later process continues it."""
        with suppress(UsageError):  # it is being opened, and has no work yet
            self._get_planned().session.pause()

    def cancel_child(self, session: str) -> bool:
        """Stop a child by the id of its session. Return False if it does not work."""
        assert self._updates
        run_id = self._updates.children.find_run(session)
        return bool(run_id) and self._get_planned().session.cancel(run_id)

    async def choose(self, option: str, value: object) -> None:
        """Use a mode or a model, from the next prompt on.

        A wider mode holds at once for the calls that the user would be asked about. Raises
        UsageError for a value that cannot be used.
        """
        if not isinstance(value, str):
            raise RequestError(INVALID_PARAMS, f"the value of {option} must be a text")
        if option == MODE:
            self._set_mode(value)
        elif option == MODEL:
            self._set_model(value)
        else:
            raise RequestError(INVALID_PARAMS, f"there is no option {option!r}: mode, model")
        if not self._lock.locked():
            async with self._lock:
                await self.apply_changes()

    def _set_mode(self, mode: str) -> None:
        if mode not in list(Mode):
            raise UnknownName("permission mode", mode, [each.value for each in Mode])
        plan = replace(self._plan, mode=mode)
        self._command_line.prepare(plan, self._approver)
        self._plan = plan
        self._approver.mode = Mode(mode)

    def _set_model(self, model: str) -> None:
        self._plan = replace(self._plan, model=model)

    def send_mode(self) -> None:
        """Send the current mode to the client."""
        mode = self._approver.mode.value
        self._send(self.id, {"sessionUpdate": "current_mode_update", "currentModeId": mode})

    def send_options(self) -> None:
        """Send the options to the client."""
        options = self.list_options()
        self._send(self.id, {"sessionUpdate": "config_option_update", "configOptions": options})

    async def apply_changes(self) -> None:
        """Open the session again if its choices have changed since.

        If that is not possible, open it as it was and raise the error.
        """
        if self._plan == self._opened_plan:
            return
        previous = self._opened_plan
        try:
            await self._open_again()
        except MudroomError:
            self._plan = previous
            await self._open_again()
            raise

    async def _open_again(self) -> None:
        session = self.id
        has_run = self._updates is not None and bool(self._updates.tree.runs)
        resume = session if has_run else self._plan.resume
        self._plan = replace(self._plan, resume=resume, id="" if resume else session)
        await self._stack.aclose()
        await self.open()

    async def close(self) -> None:
        """Stop all work and close the session."""
        if self._planned is None:
            return
        self.cancel()
        async with self._lock:
            await self._stack.aclose()

    def _make_tools(self, connection: Connection) -> tuple[Tool, ...]:
        """Return the tools that read the texts of the editor, none if it does not give them."""
        if not self._abilities.reads_files:
            self._notify("the editor does not give texts that are not saved: --unsaved has no use")
            return ()
        from .unsaved_files import UnsavedFiles

        files = UnsavedFiles(connection.request, lambda: self.id, self._notify)
        return (files.make_tool(),)

    def _make_updates(self, planned: PlannedSession) -> SessionUpdates:
        session = planned.session
        versions = FileVersions(find_versions_folder(planned.home, session.id))
        return SessionUpdates(
            session.id,
            os.path.abspath(session.cwd),
            self._abilities,
            self._send,
            read_version=versions.read,
            find_window=lambda model: self._get_planned().session.find_context_window(model),
        )

    def _load_history(
        self, updates: SessionUpdates, events: Sequence[StoredEvent], *, is_shown: bool
    ) -> None:
        """Apply the events of the record; what they send is dropped unless it is to be shown."""
        updates.is_silent = not is_shown
        updates.shows_prompts = True
        for event in events:
            updates.apply(event)
        updates.end_history()
        updates.is_silent = False
        updates.shows_prompts = False

    def _send(self, session: str, update: dict[str, Any]) -> None:
        params = {"sessionId": session, "update": update}
        self._connection.send_notification("session/update", params)

    def _get_planned(self) -> PlannedSession:
        assert self._planned
        return self._planned


MODE = "mode"
MODEL = "model"

_MODES = {
    Mode.DEFAULT: ("Default", "Asks before changes that no rule allows."),
    Mode.ACCEPT_EDITS: ("Accept edits", "Allows edits, and commands inside a sandbox."),
    Mode.PLAN: ("Plan", "Allows reading only."),
    Mode.DONT_ASK: ("Do not ask", "Denies all calls that would need an answer."),
    Mode.BYPASS: ("Bypass permissions", "Allows everything that no rule denies."),
}
"""Name and description of each mode, in the order of the menu."""


def make_modes(mode: Mode) -> dict[str, Any]:
    """Return the permission modes and the current one."""
    listed = [
        {"id": each.value, "name": name, "description": description}
        for each, (name, description) in _MODES.items()
    ]
    return {"currentModeId": mode.value, "availableModes": listed}


def make_options(mode: Mode, model: str, models: Sequence[str]) -> list[dict[str, Any]]:
    """Return the options of a session with their values.

    Arguments:
        model: current model string. models: those that work here.
    """
    modes = [
        {"value": each.value, "name": name, "description": description}
        for each, (name, description) in _MODES.items()
    ]
    names = dict.fromkeys([model, *models])
    return [
        _make_select(MODE, "Permission mode", MODE, mode.value, modes),
        _make_select(
            MODEL, "Model", MODEL, model, [{"value": name, "name": name} for name in names]
        ),
    ]


def _make_select(
    identifier: str, name: str, category: str, value: str, options: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": identifier,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": value,
        "options": options,
    }


Block = Mapping[str, Any]


def parse_prompt(blocks: Sequence[Block], prompts: Mapping[str, FilePrompt]) -> Prompt:
    """Return a prompt for the model.

    Arguments:
        prompts: prompts of files, by name. A prompt that begins with the slash and the name of
            one becomes its text.

    Raises RequestError for content that a model cannot get, UsageError for an empty file.
    """
    parsed = [_parse_block(block) for block in blocks]
    if parsed and isinstance(parsed[0], TextBlock):
        parsed[0] = TextBlock(fill_file_prompt(parsed[0].text, prompts))
    if all(isinstance(block, TextBlock) for block in parsed):
        return "\n\n".join(block.text for block in parsed if isinstance(block, TextBlock))
    return parsed


def _parse_block(block: Block) -> TextBlock | ImageBlock:
    match block.get("type"):
        case "text":
            return TextBlock(str(block.get("text", "")))
        case "image":
            return _parse_image(block)
        case "resource_link":
            return TextBlock(_describe_link(block))
        case "resource":
            return TextBlock(_format_resource(block))
        case kind:
            raise RequestError(INVALID_PARAMS, f"a model gets no content of type {kind} here")


def _parse_image(block: Block) -> ImageBlock:
    try:
        data = b64decode(str(block.get("data", "")), validate=True)
    except (Base64Error, ValueError):
        data = b""
    if not data:
        raise RequestError(INVALID_PARAMS, "an image of the prompt has no data in base64")
    return ImageBlock(str(block.get("mimeType", "")), data)


def _describe_link(block: Block) -> str:
    """Return the path or address of a resource, which the model can open with its tools."""
    return f"Attached: {_find_place(block)}"


def _format_resource(block: Block) -> str:
    value = block.get("resource")
    resource = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    place = _find_place(resource)
    text = resource.get("text")
    if not isinstance(text, str):
        return f"Attached, not as text: {place}"
    return wrap("resource", quote(text), sender=place)


def _find_place(block: Block) -> str:
    """Return the path of a file, else the address."""
    address = str(block.get("uri", ""))
    parts = urlsplit(address)
    if parts.scheme != "file":
        return address
    lines = f" ({parts.fragment})" if parts.fragment else ""
    return unquote(parts.path) + lines
