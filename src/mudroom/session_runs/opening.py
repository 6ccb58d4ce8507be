"""The first event of a session."""

from __future__ import annotations

from .._core.events import SessionOpened
from .._platform.path_text import path_to_text
from .._version import __version__
from ..build import SessionResources
from ..options import SessionOptions
from ..recorded_options import encode_options


def make_opening(
    resources: SessionResources,
    options: SessionOptions,
    session: str,
    cwd: str,
    granted: tuple[str, ...],
) -> SessionOpened:
    """Return the event that a session is open, with what holds for all of its runs.

    Arguments:
        session: id of the session.
        granted: rights beyond the sandbox, as the record shows them.
    """
    services = resources.services
    return SessionOpened(
        at=services.clock.now(),
        session=session,
        cwd=path_to_text(cwd),
        version=__version__,
        sandbox=services.environments.shared.sandbox.tier,
        granted=granted,
        isolate=options.isolate,
        check=options.check,
        board=resources.board_name,
        traceparent=services.trace_ids.traceparent if services.trace_ids else "",
        output_style=resources.output_style,
        options=encode_options(options),
    )
