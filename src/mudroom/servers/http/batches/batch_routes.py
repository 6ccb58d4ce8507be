"""`/v1/batches`: the lines of a file, each run as one task."""

from __future__ import annotations

import asyncio
import uuid

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from ....batches.input_file import InputFacts, InputFile, WrongLines
from ....errors import UsageError, quote_value, shorten_text
from ..bodies import (
    DEFAULT_AGENT,
    NewSession,
    RunCancel,
    compute_digest,
    get_type,
    parse_body,
)
from ..errors import make_not_found, make_wrong_request
from ..hosted_session import ServerParts
from ..hosted_sessions import HostedSessions
from ..records.batches import BatchRecord, BatchRequest
from ..records.sessions import SessionChoices, SessionRecord, SessionRecords
from ..route import Call
from ..session_routes import (
    SessionRoutes,
    make_conflict,
    make_session_id,
    parse_count,
    read_idempotency_key,
    respond,
)
from .file_routes import FileRoutes, send_lines
from .requests import MAX_LINES, NewBatch, make_line_parser
from .views import BatchPage, get_session, list_ends, make_batch_view

_DEFAULT_PAGE = 20
_MAX_PAGE = 100
_MAX_ERRORS = 10
"""Reasons why a batch cannot run that its client gets."""
_MAX_ERROR = 1_000
"""Maximum characters of one of them."""


class _CheckedBatch(Struct, frozen=True):
    """A batch that can be stored. `total`: number of its lines."""

    session: str
    choices: SessionChoices
    request: BatchRequest
    total: int


class BatchRoutes:
    """Batches; each request sees those of its owner."""

    def __init__(
        self,
        sessions: SessionRoutes,
        files: FileRoutes,
        parts: ServerParts,
        records: SessionRecords,
        hosts: HostedSessions,
    ) -> None:
        self._sessions = sessions
        self._files = files
        self._parts = parts
        self._records = records
        self._hosts = hosts

    async def create(self, call: Call) -> web.Response:
        """Check the lines of a file and start a batch."""
        self._sessions.check_ready()
        body = parse_body(NewBatch, call.body)
        key = read_idempotency_key(call)
        session = make_session_id(call.token.owner, "batch", key)
        digest = compute_digest("batch", body)
        record = await self._parts.batches.read(session)
        if record is None:
            new = await self._check(call, body, session)
            record = await self._hosts.complete(self._add(call.token.owner, digest, new))
        if record.digest != digest:
            raise make_conflict(key)
        if not record.request.errors and record.state != "done":
            await self._start(record)  # again, if a request has the key of an earlier one
        return await self._respond(session)

    async def _check(self, call: Call, body: NewBatch, session: str) -> _CheckedBatch:
        """Check a batch. Raises RequestError if it cannot even be stored."""
        token = call.token
        file = await self._files.find(call, body.input_file_id)
        if file.purpose != "batch":
            raise make_wrong_request("the file has results, not requests", "input_file_id")
        await self._sessions.check_amounts(token)
        wanted = NewSession(workspace=body.workspace, mode=body.mode, budget=body.budget)
        choices = replace(self._sessions.make_choices(token, wanted), is_batch=True)
        errors, total = await self._check_lines(call, body, choices)
        errors = tuple(
            (number, shorten_text(message, _MAX_ERROR)) for number, message in errors[:_MAX_ERRORS]
        )
        request = BatchRequest(
            endpoint=body.endpoint,
            input_file=file.id,
            window=body.completion_window,
            metadata=body.metadata,
            errors=errors,
        )
        return _CheckedBatch(session, choices, request, total)

    async def _add(self, owner: str, digest: bytes, new: _CheckedBatch) -> BatchRecord:
        """Store a batch, and start it if it can run."""
        record = await self._parts.batches.add(
            new.session, owner, digest, new.request, new.total, new.choices
        )
        if not record.request.errors:
            await self._start(record)
        return record

    async def _check_lines(
        self, call: Call, body: NewBatch, choices: SessionChoices
    ) -> tuple[tuple[tuple[int, str], ...], int]:
        """Return wrong lines of an input, and the number of all lines."""
        parse = make_line_parser(body.endpoint, choices.budget, DEFAULT_AGENT)
        source = InputFile(self._parts.files.get_path(body.input_file_id), parse)
        try:
            facts: InputFacts = await asyncio.to_thread(source.check, with_keys=False)
        except WrongLines as error:
            return error.errors, 0
        except UsageError as error:
            return ((0, error.message),), 0
        if facts.total > MAX_LINES:
            return ((0, f"{facts.total:,} lines are more than {MAX_LINES:,}"),), facts.total
        known = await self._sessions.list_agents(call.token, choices.workspace)
        wrong = [
            (number, f"the token has no agent {quote_value(name)}")
            for name, number in facts.agents.items()
            if name not in known
        ]
        if wrong:
            number, message = wrong[0]
            wrong[0] = (number, f"{message}; it may use: {', '.join(known) or 'none'}")
        return tuple(wrong), facts.total

    async def _start(self, record: BatchRecord) -> None:
        if session := await self._records.read(record.session):  # it may be deleted
            self._hosts.start(session)

    async def list(self, call: Call) -> web.Response:
        """Return the batches of the owner."""
        limit = parse_count(call, "limit", _DEFAULT_PAGE, _MAX_PAGE)
        before = ""
        if after := call.get("after"):
            before = (await self._find(call, after)).session
        records = await self._parts.batches.list(call.token.owner, before, limit + 1)
        views = tuple(map(make_batch_view, records[:limit]))
        return respond(BatchPage(data=views, has_more=len(records) > limit, **list_ends(views)))

    async def read(self, call: Call) -> web.Response:
        """Return one batch."""
        return respond(make_batch_view(await self._find(call, call.request.match_info["batch"])))

    async def cancel(self, call: Call) -> web.Response:
        """Start no more lines of a batch, and stop those that work."""
        record = await self._find(call, call.request.match_info["batch"])
        session = await self._records.read(record.session)
        if session and record.state != "done":
            await self._hosts.complete(self._cancel(session))
        return await self._respond(record.session)

    async def _cancel(self, session: SessionRecord) -> None:
        """Store that a batch is cancelled, with the event that stops its lines, and use it."""
        event = RunCancel()
        key = uuid.uuid4().hex
        digest = compute_digest(event)
        kind = get_type(event)
        number = await self._parts.batches.add_cancel(session.id, key, digest, kind)
        if item := await self._parts.inputs.find(number):
            await self._hosts.apply(session, item)

    async def send_output(self, call: Call) -> web.StreamResponse:
        """Return all results so far, failures included."""
        record = await self._find(call, call.request.match_info["batch"])
        progress = record.progress
        files = self._parts.files
        if progress.ended:
            names = [name for name in (progress.output_file, progress.error_file) if name]
            paths = [files.get_path(name) for name in names]
        else:
            paths = [files.get_results_path(record.session)]
        contents = [files.read(path) for path in paths]
        return await send_lines(call, contents, self._parts.options.write_seconds)

    async def _find(self, call: Call, name: str) -> BatchRecord:
        """Return a batch of the owner. Raises RequestError if there is none."""
        session = get_session(name)
        record = await self._parts.batches.read(session) if session else None
        if record is None or record.owner != call.token.owner:
            raise make_not_found("batch", name)
        return record

    async def _respond(self, session: str) -> web.Response:
        record = await self._parts.batches.read(session)
        if record is None:
            raise make_not_found("batch", session)
        return respond(make_batch_view(record))
