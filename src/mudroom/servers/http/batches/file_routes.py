"""`/v1/files`: inputs of batches, which clients send, and their results, which clients read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http import HttpProcessingError

from ..errors import RequestError, make_not_found, make_wrong_request
from ..hosted_session import ServerParts
from ..records.files import FileRecord
from ..route import Call
from ..session_routes import parse_count, respond
from ..timed_writer import TimedWriter
from .views import FileDeleted, FilePage, list_ends, make_file_view

_DEFAULT_PAGE = 100
_MAX_PAGE = 10_000
_MAX_NAME = 200
_CHUNK_BYTES = 64 << 10

FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "One request per line."},
        "purpose": {"type": "string", "enum": ["batch"]},
    },
}
"""JSON Schema of the form that uploads a file."""


class FileRoutes:
    """Files; each request sees those of its owner."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts

    async def upload(self, call: Call) -> web.Response:
        """Store a file."""
        options = self._parts.options
        used = await self._parts.file_records.count_bytes(call.token.owner)
        if used >= options.max_file_bytes:
            raise make_too_many(used, options.max_file_bytes)
        try:
            async with asyncio.timeout(options.file_seconds):
                record = await self._read_form(call)
        except TimeoutError:
            message = f"the file did not come within {options.file_seconds:g} s"
            raise RequestError(408, "too_slow", message) from None
        except (ValueError, AssertionError, LookupError, HttpProcessingError) as error:
            raise make_wrong_request(f"the body is no form with a file: {error}") from error
        return respond(make_file_view(record))

    async def _read_form(self, call: Call) -> FileRecord:
        """Return the file that a form has. Raises RequestError, ValueError."""
        if call.request.content_type != "multipart/form-data":
            raise make_wrong_request("send the file as multipart/form-data", "file")
        parts = self._parts
        file_id = parts.files.make_id()
        name = purpose = ""
        size = -1
        try:
            form = await call.request.multipart()
            while (part := await form.next()) is not None:
                if isinstance(part, MultipartReader):
                    raise make_wrong_request("the form has a form in it")
                if part.name == "file" and size < 0:
                    name = (part.filename or "file.jsonl")[:_MAX_NAME]
                    size = await parts.files.write(file_id, self._read_part(part))
                else:
                    text = await _read_text(part)
                    purpose = text if part.name == "purpose" else purpose
            if size < 0 or purpose != "batch":
                field = "file" if size < 0 else "purpose"
                raise make_wrong_request(
                    "the form needs file, and purpose with the value batch", field
                )
            return await self._add(file_id, call.token.owner, name, size)
        except BaseException:
            parts.files.remove(file_id)
            raise

    async def _add(self, file_id: str, owner: str, name: str, size: int) -> FileRecord:
        """Store a file unless those that came meanwhile have used up the bytes of the owner."""
        records = self._parts.file_records
        maximum = self._parts.options.max_file_bytes
        record = await records.add(file_id, owner, name, "batch", size, maximum=maximum)
        if record is None:
            raise make_too_many(await records.count_bytes(owner), maximum)
        return record

    async def _read_part(self, part: BodyPartReader) -> AsyncIterator[bytes]:
        maximum = self._parts.options.max_file
        size = 0
        while chunk := await part.read_chunk(_CHUNK_BYTES):
            size += len(chunk)
            if size > maximum:
                raise RequestError(413, "too_large", f"a file has at most {maximum:,} bytes")
            yield chunk

    async def list(self, call: Call) -> web.Response:
        """Return the files of the owner."""
        limit = parse_count(call, "limit", _DEFAULT_PAGE, _MAX_PAGE)
        before = call.get("after")
        if before:
            await self.find(call, before)
        records = await self._parts.file_records.list(
            call.token.owner, call.get("purpose"), before, limit + 1
        )
        views = tuple(map(make_file_view, records[:limit]))
        return respond(FilePage(data=views, has_more=len(records) > limit, **list_ends(views)))

    async def read(self, call: Call) -> web.Response:
        """Return one file without its content."""
        return respond(make_file_view(await self.find(call, call.request.match_info["file"])))

    async def send_content(self, call: Call) -> web.StreamResponse:
        """Return the content of a file."""
        record = await self.find(call, call.request.match_info["file"])
        chunks = self._parts.files.read(self._parts.files.get_path(record.id))
        return await send_lines(call, [chunks], self._parts.options.write_seconds)

    async def delete(self, call: Call) -> web.Response:
        """Delete a file that no batch reads."""
        record = await self.find(call, call.request.match_info["file"])
        if await self._parts.batches.is_used(record.id):
            message = "a batch reads this file; cancel the batch, or wait for its end"
            raise RequestError(409, "file_used", message)
        await self._parts.file_records.delete(record.id)
        self._parts.files.remove(record.id)
        return respond(FileDeleted(id=record.id))

    async def find(self, call: Call, name: str) -> FileRecord:
        """Return a file of the owner. Raises RequestError if there is none."""
        record = await self._parts.file_records.find(name, call.token.owner)
        if record is None:
            raise make_not_found("file", name)
        return record


async def send_lines(
    call: Call, contents: list[AsyncIterator[bytes]], seconds: float
) -> web.StreamResponse:
    """Send the content of files, one after the other. `seconds`: time for one write."""
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    await response.prepare(call.request)
    writer = TimedWriter(call.request, response, seconds)
    with suppress(TimeoutError, ConnectionError):  # the client does not read it
        for chunks in contents:
            async for chunk in chunks:
                await writer.write(chunk)
    return response


def make_too_many(used: int, maximum: int) -> RequestError:
    """Return the error for an owner whose files have used up their bytes."""
    message = f"your files have {used:,} bytes, of {maximum:,}. Delete some"
    return RequestError(429, "too_many_files", message)


async def _read_text(part: BodyPartReader) -> str:
    """Return a short field of a form. Raises RequestError."""
    text = bytearray()
    while chunk := await part.read_chunk():
        text += chunk
        if len(text) > _CHUNK_BYTES:
            raise make_wrong_request("a field of the form is too long", part.name or "")
    return text.decode("utf-8", "replace")
