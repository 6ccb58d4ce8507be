"""Files and batches, as clients of OpenAI's API read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from ...._core.runs import Reason
from ..records.batches import BatchRecord
from ..records.files import FileRecord, Purpose

_PREFIX = "batch_"

BatchStatus = Literal["validating", "failed", "in_progress", "completed", "cancelling", "cancelled"]


class FileView(Struct, frozen=True, kw_only=True):
    """A file. `bytes`: its size. `created_at`: seconds since 1970."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Purpose
    object: str = "file"
    status: str = "processed"


class FilePage(Struct, frozen=True, kw_only=True):
    """Files, the newest first."""

    data: tuple[FileView, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class FileDeleted(Struct, frozen=True, kw_only=True):
    """A file that was deleted."""

    id: str
    object: str = "file"
    deleted: bool = True


class BatchError(Struct, frozen=True, kw_only=True):
    """Why a batch cannot run. `line`: number of a line, None for the whole batch."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(Struct, frozen=True, kw_only=True):
    """All reasons why a batch cannot run, at most ten."""

    data: tuple[BatchError, ...]
    object: str = "list"


class RequestCounts(Struct, frozen=True, kw_only=True):
    """Numbers of lines."""

    total: int
    completed: int
    failed: int


class BatchView(Struct, frozen=True, kw_only=True):
    """A batch. Times are seconds since 1970, None before.

    Arguments:
        session: id of the session that runs the lines, as of `/v1/sessions`.
        output_file_id, error_file_id: files with the results, None before and without a line.
    """

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchStatus
    session: str
    created_at: int
    request_counts: RequestCounts
    object: str = "batch"
    errors: BatchErrors | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    metadata: dict[str, str] | None = None


class BatchPage(Struct, frozen=True, kw_only=True):
    """Batches, the newest first."""

    data: tuple[BatchView, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


def make_file_view(record: FileRecord) -> FileView:
    """Return a file as clients read it."""
    return FileView(
        id=record.id,
        bytes=record.size,
        created_at=int(record.created),
        filename=record.name,
        purpose=record.purpose,
    )


def make_batch_id(session: str) -> str:
    """Return the id of the batch of a session."""
    return f"{_PREFIX}{session}"


def get_session(batch: str) -> str:
    """Return the session of a batch, by its id; "" for another text."""
    return batch.removeprefix(_PREFIX) if batch.startswith(_PREFIX) else ""


def make_batch_view(record: BatchRecord) -> BatchView:
    """Return a batch as clients read it."""
    progress = record.progress
    status = get_status(record)
    ended = _get_time(progress.ended or record.result.ended or record.created)
    return BatchView(
        id=make_batch_id(record.session),
        endpoint=record.request.endpoint,
        input_file_id=record.request.input_file,
        completion_window=record.request.window,
        status=status,
        session=record.session,
        created_at=int(record.created),
        request_counts=RequestCounts(
            total=progress.total, completed=progress.completed, failed=progress.failed
        ),
        errors=_make_errors(record),
        output_file_id=progress.output_file or None,
        error_file_id=progress.error_file or None,
        in_progress_at=_get_time(progress.started),
        completed_at=ended if status == "completed" else None,
        failed_at=ended if status == "failed" else None,
        cancelling_at=_get_time(record.cancelled),
        cancelled_at=max(ended or 0, int(record.cancelled)) if status == "cancelled" else None,
        metadata=record.request.metadata,
    )


def get_status(record: BatchRecord) -> BatchStatus:
    """Return the state of a batch in the words of OpenAI's API."""
    if record.request.errors:
        return "failed"
    if record.state == "done" and not record.cancelled:
        return "failed" if record.result.error else "completed"
    if record.state == "done":
        return "cancelled"
    if record.cancelled:
        return "cancelling"
    return "in_progress" if record.state == "working" else "validating"


def list_ends(views: Sequence[FileView] | Sequence[BatchView]) -> dict[str, Any]:
    """Return the first and the last id of a page."""
    return {
        "first_id": views[0].id if views else None,
        "last_id": views[-1].id if views else None,
    }


def _make_errors(record: BatchRecord) -> BatchErrors | None:
    errors = [
        BatchError(code="wrong_line" if line else "wrong_file", message=message, line=line or None)
        for line, message in record.request.errors
    ]
    if record.result.error and record.result.reason != Reason.CANCELLED.value:
        errors.append(BatchError(code="failed", message=record.result.error))
    return BatchErrors(data=tuple(errors)) if errors else None


def _get_time(seconds: float) -> int | None:
    return int(seconds) or None
