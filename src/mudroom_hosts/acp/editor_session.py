"""EditorSession: one of the editor's sessions, with its prompts, choices and updates."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from mudroom import ImageBlock, Mode, Session, TextBlock, Tool
from mudroom.driving import SessionDriver, SessionStart, Turn
from mudroom.errors import UnknownName
from mudroom.events import StoredEvent
from mudroom.views import quote, wrap

from ..file_prompts import FilePrompt, fill_file_prompt
from ..json_values import as_bytes, as_object
from .approver import EditorApprover
from .json_rpc import INVALID_PARAMS, Connection, RequestError
from .params import ClientAbilities
from .setup import CommandLine, EditorSessionPlan, ServerCommand
from .updates import SessionUpdates, make_prompt_end, make_reason_meta

CANCELLED = {"stopReason": "cancelled"}


class EditorSession:
    """One conversation. Reopened when the user chooses another mode or model."""

    _session: Session  # the last one made, also while it is being opened

    def __init__(
        self,
        connection: Connection,
        command_line: CommandLine,
        plan: EditorSessionPlan,
        abilities: ClientAbilities,
        notify: Callable[[str], object],
    ) -> None:
        self._connection = connection
        self._command_line = command_line
        self._abilities = abilities
        self._notify = notify
        if command_line.reads_unsaved:
            plan = replace(plan, tools=self._make_tools(connection))
        self._approver = EditorApprover(connection.request, abilities, notify)
        self._driver = SessionDriver(
            self._make_session,
            plan,
            questions=self._approver.questions,
            on_open=self._begin,
            resumes=bool(plan.resume),
        )
        self._updates: SessionUpdates | None = None
        self._history: list[StoredEvent] = []
        self._shows_history = False
        self._prompts: dict[str, FilePrompt] = {}
        self._server_commands: tuple[ServerCommand, ...] = ()

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def is_busy(self) -> bool:
        return bool(self._driver.current or self._driver.waiting)

    async def open(self, *, shows_history: bool = False) -> None:
        """Open the session; with `shows_history`, send the contents of its record."""
        self._shows_history = shows_history
        await self._driver.__aenter__()

    def _make_session(self, plan: EditorSessionPlan, start: SessionStart) -> Session:
        if start.id is not None:
            plan = replace(plan, **{"resume": "", "id": "", **start.options})
        session = self._command_line.prepare(plan, self._approver.questions)
        if self._updates is None and plan.resume:
            session.watch_history(self._history.append)
        self._session = session
        return session

    async def _begin(self, session: Session) -> None:
        for notice in session.notices:
            self._notify(notice.text)
        if self._updates is None:
            self._updates = self._make_updates(session)
            self._load_history(self._updates)
        self._approver.start_session(self._updates, session)
        session.watch(self._updates.apply)

    def describe(self) -> dict[str, Any]:
        modes = {"currentModeId": self._mode.value, "availableModes": _list_modes("id")}
        return {"modes": modes, "configOptions": self.list_options()}

    def list_options(self) -> list[dict[str, Any]]:
        model = self._driver.plan.model or self._session.model
        return make_options(self._mode, model, self._command_line.list_models())

    async def send_commands(self) -> None:
        """Send prompts from files and MCP servers as editor commands."""
        session = self._session
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

    def submit(self, blocks: Sequence[Block]) -> Turn[dict[str, Any]]:
        """Queue a prompt; `finish` returns its answer."""
        return self._driver.submit(lambda turn: self._run(turn, blocks))

    async def finish(self, turn: Turn[dict[str, Any]]) -> dict[str, Any]:
        """Wait for a prompt, and return the answer to the client. Cancelling stops the prompt."""
        try:
            return await turn.wait() or CANCELLED
        except asyncio.CancelledError:
            if turn.run_id is None:
                turn.stop()
                raise
            self.cancel()
            return await turn.wait() or CANCELLED

    async def _run(self, turn: Turn[Any], blocks: Sequence[Block]) -> dict[str, Any]:
        session = await turn.open()
        blocks = await self._fill_server_prompt(turn, session, blocks)
        report = await turn.run(parse_prompt(blocks, self._prompts))
        if self._server_commands != tuple(self._command_line.list_server_prompts(session)):
            await self.send_commands()
        if report is None or turn.is_stopped:
            return CANCELLED | (make_reason_meta(report) if report else {})
        assert self._updates
        return make_prompt_end(report, self._updates.usage.stop)

    async def _fill_server_prompt(
        self, turn: Turn[Any], session: Session, blocks: Sequence[Block]
    ) -> Sequence[Block]:
        """Replace a call of an MCP server's prompt in the blocks with the prompt's text."""
        line = str(blocks[0].get("text", "")).strip() if blocks else ""
        name, _, words = line.partition(" ")
        if not name.startswith("/"):
            return blocks
        fetch = self._command_line.fetch_server_prompt(session, name, words.strip())
        text = await turn.prepare(fetch)
        return blocks if text is None else [{"type": "text", "text": text}, *blocks[1:]]

    def cancel(self) -> None:
        self._driver.cancel()

    def pause(self) -> None:
        """Stop all work so that a later process can continue it."""
        self._driver.pause()

    def cancel_child(self, session: str) -> bool:
        """Stop a child by its session id. Return False if it is not running."""
        assert self._updates
        run_id = self._updates.children.find_run(session)
        return bool(run_id) and self._driver.session.runs.cancel(run_id)

    async def choose(self, option: str, value: object) -> None:
        """Use a mode or a model, from the next prompt on.

        A wider mode applies at once to calls the user would be asked about. Raises
        UsageError for an unusable value.
        """
        if not isinstance(value, str):
            raise RequestError(INVALID_PARAMS, f"the value of {option} must be a text")
        if option == MODE:
            self._set_mode(value)
        elif option == MODEL:
            self._set_model(value)
        else:
            raise RequestError(INVALID_PARAMS, f"there is no option {option!r}: mode, model")
        await self._driver.apply_plan()

    def _set_mode(self, mode: str) -> None:
        if mode not in list(Mode):
            raise UnknownName("permission mode", mode, [each.value for each in Mode])
        plan = replace(self._driver.plan, mode=mode)
        self._command_line.prepare(plan, self._approver.questions)
        self._driver.plan = plan
        self._approver.questions.mode = Mode(mode)

    def _set_model(self, model: str) -> None:
        self._driver.plan = replace(self._driver.plan, model=model)

    @property
    def _mode(self) -> Mode:
        return self._approver.questions.mode or Mode.DEFAULT

    def send_mode(self) -> None:
        mode = self._mode.value
        self._send(self.id, {"sessionUpdate": "current_mode_update", "currentModeId": mode})

    def send_options(self) -> None:
        options = self.list_options()
        self._send(self.id, {"sessionUpdate": "config_option_update", "configOptions": options})

    async def close(self) -> None:
        self.cancel()
        await self._driver.drain()
        await self._driver.__aexit__()

    def _make_tools(self, connection: Connection) -> tuple[Tool, ...]:
        """Make the tools that read the editor's unsaved text, none if it does not offer it."""
        if not self._abilities.reads_files:
            self._notify("the editor does not give texts that are not saved: --unsaved has no use")
            return ()
        from .unsaved_files import UnsavedFiles

        files = UnsavedFiles(connection.request, lambda: self.id, self._notify)
        return (files.make_tool(),)

    def _make_updates(self, session: Session) -> SessionUpdates:
        return SessionUpdates(
            session.id,
            os.path.abspath(session.cwd),
            self._abilities,
            self._send,
            read_version=lambda digest: self._session.read_version(digest),
            find_window=lambda model: self._session.find_context_window(model),
        )

    def _load_history(self, updates: SessionUpdates) -> None:
        """Apply the record's events; drop what they send unless it is to be shown."""
        updates.is_silent = not self._shows_history
        updates.shows_prompts = True
        for event in self._history:
            updates.apply(event)
        self._history.clear()
        updates.end_history()
        updates.is_silent = False
        updates.shows_prompts = False

    def _send(self, session: str, update: dict[str, Any]) -> None:
        params = {"sessionId": session, "update": update}
        self._connection.send_notification("session/update", params)


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


def make_options(mode: Mode, model: str, models: Sequence[str]) -> list[dict[str, Any]]:
    """Make a session's options with their values; `models` are those that work here."""
    names = dict.fromkeys([model, *models])
    return [
        _make_select(MODE, "Permission mode", MODE, mode.value, _list_modes("value")),
        _make_select(
            MODEL, "Model", MODEL, model, [{"value": name, "name": name} for name in names]
        ),
    ]


def _list_modes(key: str) -> list[dict[str, Any]]:
    return [
        {key: mode.value, "name": name, "description": description}
        for mode, (name, description) in _MODES.items()
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


def parse_prompt(
    blocks: Sequence[Block], prompts: Mapping[str, FilePrompt]
) -> str | list[TextBlock | ImageBlock]:
    """Parse a prompt for the model; a call of a prompt file becomes the file's text.

    Raises RequestError for content that models cannot receive, UsageError for an empty file.
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
            return TextBlock(f"Attached: {_find_place(block)}")
        case "resource":
            return TextBlock(_format_resource(block))
        case kind:
            raise RequestError(INVALID_PARAMS, f"a model gets no content of type {kind} here")


def _parse_image(block: Block) -> ImageBlock:
    data = as_bytes(block.get("data"))
    if not data:
        raise RequestError(INVALID_PARAMS, "an image of the prompt has no data in base64")
    return ImageBlock(str(block.get("mimeType", "")), data)


def _format_resource(block: Block) -> str:
    resource = as_object(block.get("resource"))
    place = _find_place(resource)
    text = resource.get("text")
    if not isinstance(text, str):
        return f"Attached, not as text: {place}"
    return wrap("resource", quote(text), sender=place)


def _find_place(block: Block) -> str:
    """Find a file's path, else the address."""
    address = str(block.get("uri", ""))
    parts = urlsplit(address)
    if parts.scheme != "file":
        return address
    lines = f" ({parts.fragment})" if parts.fragment else ""
    return unquote(parts.path) + lines
