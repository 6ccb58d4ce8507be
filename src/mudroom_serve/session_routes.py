"""Paths of sessions: create, list, read, delete, and send events."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import asdict

from mudroom import Mode, Reason
from mudroom.driving import delete_session
from mudroom.errors import MudroomError
from mudroom.ports import make_busy_error

from .charges import explain_used_up
from .feed import make_cursor, parse_cursor
from .questions import Asking, list_questions
from .request_bodies import (
    DEFAULT_AGENT,
    ClientEvent,
    NewSession,
    UserMessage,
    check_message,
    compute_digest,
    get_type,
    limit_budget,
    parse_body,
    parse_event,
)
from .request_errors import RequestError, make_not_found, make_wrong_request
from .response_bodies import (
    Deleted,
    SessionCreated,
    SessionPage,
    SessionView,
    make_input_view,
)
from .route import Call
from .served_session import ServerParts, is_recorded
from .session_registry import SessionRegistry
from .state.inputs import PROMPT, Input, InputResult
from .state.sessions import FIRST_KEY, SessionChoices, SessionRecord, SessionRecords
from .state.tokens import Token

_NAMESPACE = uuid.UUID("5b0c0a52-5a7e-4d0c-9d67-7b0c3e1d9a11")
_DEFAULT_PAGE = 50
_MAX_PAGE = 500
_ANSWER_EVENT = "question.answer"
_KEY_PREFIX = "key:"
"""Prefix of keys chosen by clients, so that they differ from the server's."""


class SessionRoutes:
    """The sessions of all owners; each request sees only its owner's."""

    def __init__(
        self,
        parts: ServerParts,
        records: SessionRecords,
        registry: SessionRegistry,
        find_agents: Callable[[Token, str], Awaitable[list[str]]],
        is_draining: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._records = records
        self._registry = registry
        self._find_agents = find_agents
        self._is_draining = is_draining

    async def create(self, call: Call) -> web.Response:
        body = parse_body(NewSession, call.body)
        record, item, is_new = await self.add_session(call, body)
        view = await self.describe(record)
        fields: Any = {name: getattr(view, name) for name in view.__struct_fields__}
        created = SessionCreated(**fields, input=make_input_view(item) if item else None)
        return respond(created, 201 if is_new else 200)

    async def add_session(
        self, call: Call, body: NewSession, *, kind: str = ""
    ) -> tuple[SessionRecord, Input | None, bool]:
        """Store a session and its first prompt; return them, and whether the session is new.

        Keys of different kinds of requests never collide.
        """
        self.check_ready()
        choices = self.make_choices(call.token, body)
        await self._check_agent(call.token, choices)
        if body.prompt is not None:
            check_message(body.prompt, body.outputs)
        key = read_idempotency_key(call)
        session = make_session_id(call.token.owner, kind, key)
        digest = compute_digest(kind, body)
        known = await self._records.read(session) if key else None
        if known is None and body.prompt is not None:
            await self.check_amounts(call.token)
        message = None if body.prompt is None else UserMessage(body.prompt, body.outputs)
        owner = call.token.owner
        record, item, is_new = await self._registry.complete(
            self._add_session(session, owner, digest, choices, message)
        )
        if record.digest != digest:
            raise make_conflict(key)
        return record, item, is_new

    async def _add_session(
        self,
        session: str,
        owner: str,
        digest: bytes,
        choices: SessionChoices,
        message: UserMessage | None,
    ) -> tuple[SessionRecord, Input | None, bool]:
        """Store a session with its first prompt in one step, and start it."""
        first = None if message is None else msgspec.to_builtins(message)
        record, is_new = await self._records.add(session, owner, digest, choices, first)
        if message is None or record.digest != digest:
            return record, None, is_new
        return record, await self._add_input(record, message, FIRST_KEY, digest), is_new

    async def list(self, call: Call) -> web.Response:
        limit = parse_count(call, "limit", _DEFAULT_PAGE, _MAX_PAGE)
        before = parse_cursor("", call.get("after"))
        records = await self._records.list(call.token.owner, before, limit + 1)
        views = [await self.describe(record) for record in records[:limit]]
        has_more = len(records) > limit
        cursor = make_cursor("", records[limit - 1].number) if has_more else ""
        return respond(SessionPage(data=tuple(views), next=cursor))

    async def read(self, call: Call) -> web.Response:
        return respond(await self.describe(await self.find(call)))

    async def delete(self, call: Call) -> web.Response:
        record = await self.find(call)
        await self._registry.complete(self._delete(record))
        return respond(Deleted(id=record.id))

    async def _delete(self, record: SessionRecord) -> None:
        """Delete a session. If the process ends meanwhile, the request can be repeated."""
        is_here = await self._registry.stop(record.id)
        if not is_here and (writer := await self._parts.store.find_writer(record.id)):
            raise make_busy_error(writer, record.id)
        try:
            await self._delete_stopped(record)
        except MudroomError:
            self._registry.start(record)  # its prompts continue, unless already cancelled
            raise

    async def _delete_stopped(self, record: SessionRecord) -> None:
        for item in await self._parts.inputs.list_open(record.id):
            result = InputResult(reason=Reason.CANCELLED.value, error="the session is deleted")
            await self._parts.inputs.finish(item.number, result)  # so that it does not run again
        if await is_recorded(self._parts.store, record.id):
            await delete_session(self._parts.store, self._parts.options.home, record.id)
        await self._records.delete(record.id)

    async def add_event(self, call: Call) -> web.Response:
        record = await self.find(call)
        event = parse_event(call.body)
        needed = "answer" if get_type(event) == _ANSWER_EVENT else "run"
        if needed not in call.token.scopes:
            raise RequestError(403, "wrong_scope", f"the token does not have the scope {needed}")
        return respond(make_input_view(await self.add_input(call, record, event)), 202)

    async def add_input(self, call: Call, record: SessionRecord, event: ClientEvent) -> Input:
        """Store an event of a session, once for each idempotency key, and use it."""
        self.check_ready()
        key = read_idempotency_key(call)
        if isinstance(event, UserMessage):
            check_message(event.text, event.outputs)
            await self._check_amounts_unless_known(call.token, record, key)
        adding = self._add_input(record, event, key, compute_digest(event))
        return await self._registry.complete(adding)

    async def _add_input(
        self, record: SessionRecord, event: ClientEvent, key: str, digest: bytes
    ) -> Input:
        kind = get_type(event)
        body = msgspec.to_builtins(event)
        item, is_new = await self._parts.inputs.add(
            record.id, key or uuid.uuid4().hex, digest, kind, body
        )
        if item.digest != digest:
            raise make_conflict(key)
        if kind == PROMPT:
            if item.state != "done":
                self._registry.start(record)
            return item
        if is_new:
            await self._registry.apply(record, item)
        return await self._parts.inputs.find(item.number) or item

    async def find(self, call: Call, session: str = "") -> SessionRecord:
        name = session or call.session
        record = await self._records.find(name, call.token.owner)
        if record is None:
            raise make_not_found("session", name)
        return record

    async def exists(self, session: str) -> bool:
        return await self._records.read(session) is not None

    async def describe(self, record: SessionRecord) -> SessionView:
        served = self._registry.find(record.id)
        record = await self._records.read(record.id) or record
        last = await self._parts.inputs.find_last_prompt(record.id)
        status = served.status if served else "idle"
        if status == "idle" and last and last.state != "done":
            status = "waiting" if last.state == "waiting" else "working"
        questions = list_questions(served.questions) if served else ()
        run = served.run if served else ""
        if served is None and record.asking and status == "working":
            asking = msgspec.json.decode(record.asking, type=Asking)
            status, run, questions = "asking", asking.run, asking.questions
        choices = record.choices
        budget = {name: value for name, value in asdict(choices.budget).items() if value}
        return SessionView(
            id=record.id,
            agent=choices.agent,
            workspace=choices.workspace,
            mode=choices.mode,
            created=record.created,
            status=status,
            run=run,
            questions=questions,
            budget=budget,
            usd=record.usd,
            tokens=record.tokens,
            last=make_input_view(last) if last else None,
        )

    def check_ready(self) -> None:
        """Raise RequestError while the server stops."""
        if self._is_draining():
            raise RequestError(
                503,
                "draining",
                "the server stops; send it again soon",
                headers={"Retry-After": "2"},
            )

    async def check_amounts(self, token: Token) -> None:
        """Raise RequestError if the owner may not start a prompt now."""
        spending = self._parts.spending
        limits = (token.usd_per_day, token.tokens_per_day)
        if why := await explain_used_up(spending, token.owner, *limits):
            headers = {"Retry-After": str(spending.get_seconds_left())}
            raise RequestError(429, "budget_used_up", why, headers=headers)
        most = self._parts.options.max_waiting
        if await self._parts.inputs.count_waiting(token.owner) >= most:
            message = f"{most:,} prompts of {token.owner} wait already"
            raise RequestError(429, "too_many_waiting", message, headers={"Retry-After": "10"})

    async def _check_amounts_unless_known(
        self, token: Token, record: SessionRecord, key: str
    ) -> None:
        """Raise RequestError if the owner may not start a prompt now, unless it is a repeat.

        The same request may be stored meanwhile, and be the one that leaves no room.
        """
        try:
            await self.check_amounts(token)
        except RequestError:
            if not key or not await self._parts.inputs.has(record.id, key):
                raise

    def make_choices(self, token: Token, body: NewSession) -> SessionChoices:
        """Make a client's choices, leaving its agent unchecked. Raises RequestError."""
        options = self._parts.options
        workspace = body.workspace or self._choose_workspace(token)
        allowed = token.workspaces or tuple(options.workspaces)
        if workspace not in options.workspaces or workspace not in allowed:
            known = [name for name in options.workspaces if name in allowed]
            raise make_choice_error("workspace", workspace, known)
        mode = body.mode or ""
        if mode and (mode not in token.modes or mode not in list(Mode)):
            raise make_choice_error("mode", mode, token.modes)
        agent = "" if body.agent in (None, DEFAULT_AGENT) else str(body.agent)
        return SessionChoices(
            agent=agent,
            workspace=workspace,
            mode=mode,
            budget=limit_budget(body.budget, options.limits),
            usd_per_day=token.usd_per_day,
            tokens_per_day=token.tokens_per_day,
        )

    async def _check_agent(self, token: Token, choices: SessionChoices) -> None:
        agent = choices.agent or DEFAULT_AGENT
        known = await self._find_agents(token, choices.workspace)
        if agent not in known:
            raise make_choice_error("agent", agent, known)

    def _choose_workspace(self, token: Token) -> str:
        names = list(self._parts.options.workspaces)
        return next((name for name in names if name in token.workspaces), names[0])


def make_choice_error(kind: str, name: str, known: Any) -> RequestError:  # noqa: ANN401  (names)
    names = ", ".join(known) or "none"
    message = f"the token has no {kind} {name!r}; it may use: {names}"
    return RequestError(400, f"unknown_{kind}", message, param=kind)


def make_conflict(key: str) -> RequestError:
    shown = key.removeprefix(_KEY_PREFIX)
    message = f"another request had the Idempotency-Key {shown!r}. Use a new key"
    return RequestError(409, "key_used", message)


def make_session_id(owner: str, kind: str, key: str) -> str:
    """Make a new session's id, which is the same for the same owner's key."""
    if not key:
        return str(uuid.uuid4())
    return str(uuid.uuid5(_NAMESPACE, f"{owner}\n{kind}\n{key}"))


def read_idempotency_key(call: Call) -> str:
    """Read a request's idempotency key, "" without one."""
    key = call.request.headers.get("Idempotency-Key", "")
    if len(key) > 255 or not key.isprintable():
        raise make_wrong_request("Idempotency-Key must have at most 255 printable characters")
    return f"{_KEY_PREFIX}{key}" if key else ""


def parse_count(call: Call, name: str, default: int, maximum: int) -> int:
    text = call.get(name)
    if not text:
        return default
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not 1 <= int(text) <= maximum:
        raise make_wrong_request(f"{name} must be a number from 1 to {maximum}", name)
    return int(text)


def respond(value: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(value, enc_hook=repr),
        content_type="application/json",
    )
