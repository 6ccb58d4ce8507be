"""AcpServer: answers the requests of one editor, which drives any number of sessions."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mudroom import __version__

from .json_rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Connection,
    Params,
    Reply,
    RequestError,
)
from .params import (
    AuthenticateParams,
    ClientAbilities,
    FolderParams,
    InitializeParams,
    ListParams,
    ModeParams,
    OptionParams,
    PromptParams,
    SessionParams,
    make_servers,
    parse_params,
    require_absolute,
)
from .setup import CommandLine, EditorSessionPlan

if TYPE_CHECKING:
    from .editor_session import EditorSession

PROTOCOL_VERSION = 1
_AUTH_ENVIRONMENT = "environment"
_AUTH_TERMINAL = "terminal"
_NO_MODEL = (
    "no model is set up. Set a key, such as ANTHROPIC_API_KEY, in the environment of the editor, "
    "or choose a model with: mudroom config set model NAME. mudroom models lists the providers"
)
_PAGE = 50  # sessions per answer to session/list


class AcpServer:
    """One client and its sessions."""

    def __init__(
        self,
        command_line: CommandLine,
        write: Callable[[bytes], None],
        notify: Callable[[str], object],
    ) -> None:
        self._command_line = command_line
        self._notify = notify
        self._abilities = ClientAbilities()
        self._sessions: dict[str, EditorSession] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connection = Connection(write, self._answer, self._receive, notify)
        self._methods: dict[str, Callable[[Params], Awaitable[Reply]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new_session,
            "session/load": partial(self._continue, shows_history=True),
            "session/resume": partial(self._continue, shows_history=False),
            "session/list": self._list_sessions,
            "session/close": self._close_session,
            "session/delete": self._delete_session,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        """Serve the client until its input ends, then stop all work; records stay."""
        reading = asyncio.create_task(self._connection.serve(lines))
        self._reading = reading
        try:
            await asyncio.wait({reading})
        finally:
            reading.cancel()
            for session in self._sessions.values():
                session.cancel()
            await self._connection.close()
            await asyncio.gather(*self._tasks, reading, return_exceptions=True)
            for session in self._sessions.values():
                await session.close()

    def pause(self) -> bool:
        """Stop all work so that it continues when the editor reloads its sessions, and end."""
        for session in self._sessions.values():
            session.pause()
        return self.stop()

    def stop(self) -> bool:
        self._reading.cancel()
        return True

    def _answer(self, method: str, params: Params) -> Awaitable[Reply]:
        action = self._methods.get(method)
        if action is None:
            raise RequestError(METHOD_NOT_FOUND, f"mudroom has no method {method}")
        return action(params)

    def _receive(self, method: str, params: Params) -> None:
        if method != "session/cancel":
            if not method.startswith(("$/", "_")):
                self._notify(f"not used by mudroom: the notification {method}")
            return
        identifier = str(params.get("sessionId", ""))
        session = self._sessions.get(identifier)
        if session:
            session.cancel()
        elif not any(each.cancel_child(identifier) for each in self._sessions.values()):
            self._notify(f"nothing to cancel: no session {identifier!r} works")

    async def _initialize(self, params: Params) -> Reply:
        fields = parse_params(params, InitializeParams)
        self._abilities = fields.abilities
        methods: list[dict[str, Any]] = [
            {
                "id": _AUTH_ENVIRONMENT,
                "name": "Key in the environment",
                "description": "A key of a model provider, such as ANTHROPIC_API_KEY, is set.",
            }
        ]
        if self._abilities.has_terminal:
            methods.append(
                {
                    "type": "terminal",
                    "id": _AUTH_TERMINAL,
                    "name": "Check the setup in a terminal",
                    "description": "Lists what is missing, and says how to set up a model.",
                    "args": ["--setup"],
                }
            )
        result: dict[str, Any] = {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "mudroom", "title": "mudroom", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
            },
            "authMethods": methods,
        }
        preload = self._command_line.preload
        return Reply(result, follow=lambda: self._start(asyncio.to_thread(preload)))

    def _start(self, work: Any) -> None:  # noqa: ANN401  (an awaitable)
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _authenticate(self, params: Params) -> Reply:
        method = parse_params(params, AuthenticateParams).method_id
        if method not in (_AUTH_ENVIRONMENT, _AUTH_TERMINAL):
            raise RequestError(INVALID_PARAMS, f"there is no way to log in named {method!r}")
        self._require_model(os.curdir)
        return Reply({})

    def _require_model(self, folder: str) -> None:
        if not self._command_line.has_model(folder):
            raise RequestError(AUTH_REQUIRED, _NO_MODEL)

    async def _new_session(self, params: Params) -> Reply:
        session = await self._open(self._make_plan(parse_params(params, FolderParams)))
        return self._describe_opened(session, {"sessionId": session.id})

    async def _continue(self, params: Params, *, shows_history: bool) -> Reply:
        fields = parse_params(params, FolderParams)
        known = self._sessions.get(fields.session_id)
        if known and known.is_busy:
            raise RequestError(INVALID_REQUEST, "a prompt of this session is running")
        if not fields.session_id or "/" in fields.session_id:
            raise RequestError(NOT_FOUND, f"no session {fields.session_id!r} is recorded")
        plan = replace(self._make_plan(fields), resume=fields.session_id)
        if known:
            del self._sessions[fields.session_id]
            await known.close()
        session = await self._open(plan, shows_history=shows_history)
        return self._describe_opened(session, {})

    def _make_plan(self, fields: FolderParams) -> EditorSessionPlan:
        if fields.additional_directories:
            self._notify("not used by mudroom: additionalDirectories of the editor")
        cwd = require_absolute(fields.cwd)
        return EditorSessionPlan(cwd=cwd, servers=make_servers(fields.mcp_servers))

    async def _open(self, plan: EditorSessionPlan, *, shows_history: bool = False) -> EditorSession:
        from .editor_session import EditorSession  # slow to import

        self._require_model(plan.cwd)
        session = EditorSession(
            self._connection, self._command_line, plan, self._abilities, self._notify
        )
        await session.open(shows_history=shows_history)
        if plan.resume and session.id != plan.resume:  # the start of an id, or a name
            await session.close()
            raise RequestError(NOT_FOUND, f"no session {plan.resume!r} is recorded")
        self._sessions[session.id] = session
        return session

    def _describe_opened(self, session: EditorSession, fields: dict[str, Any]) -> Reply:
        return Reply(
            fields | session.describe(), follow=lambda: self._start(session.send_commands())
        )

    async def _list_sessions(self, params: Params) -> Reply:
        fields = parse_params(params, ListParams)
        recorded = await self._command_line.list_sessions(fields.cwd)
        cursor = fields.cursor or ""
        first = int(cursor) if cursor.isdecimal() else 0
        listed = [
            {
                "sessionId": session.id,
                "cwd": session.cwd,
                "title": session.title,
                "updatedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.written)),
            }
            for session in recorded[first : first + _PAGE]
        ]
        result: dict[str, Any] = {"sessions": listed}
        if len(recorded) > first + _PAGE:
            result["nextCursor"] = str(first + _PAGE)
        return Reply(result)

    async def _close_session(self, params: Params) -> Reply:
        session = self._find(params)
        del self._sessions[session.id]
        await session.close()
        return Reply({})

    async def _delete_session(self, params: Params) -> Reply:
        identifier = parse_params(params, SessionParams).session_id
        if identifier in self._sessions:
            raise RequestError(INVALID_REQUEST, "the session is open; close it first")
        await self._command_line.delete_session(identifier)
        return Reply({})

    def _prompt(self, params: Params) -> Awaitable[Reply]:
        fields = parse_params(params, PromptParams)
        session = self._find(params)
        return _wrap(session.finish(session.submit(fields.prompt)))

    async def _set_mode(self, params: Params) -> Reply:
        fields = parse_params(params, ModeParams)
        session = self._find(params)
        await session.choose("mode", fields.mode_id)
        return Reply({}, follow=session.send_options)

    async def _set_option(self, params: Params) -> Reply:
        fields = parse_params(params, OptionParams)
        session = self._find(params)
        await session.choose(fields.config_id, fields.value)
        follow = session.send_mode if fields.config_id == "mode" else None
        return Reply({"configOptions": session.list_options()}, follow=follow)

    def _find(self, params: Params) -> EditorSession:
        identifier = parse_params(params, SessionParams).session_id
        session = self._sessions.get(identifier)
        if session is None:
            about = "is a subagent, which its parent alone prompts" if "/" in identifier else ""
            text = f"the session {identifier!r} {about or 'is not open: session/load opens it'}"
            raise RequestError(NOT_FOUND, text)
        return session


async def _wrap(result: Awaitable[dict[str, Any]]) -> Reply:
    return Reply(await result)
