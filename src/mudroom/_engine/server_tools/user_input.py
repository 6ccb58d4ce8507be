"""Questions to the user during a call: the approver answers, the record has the answer first."""

from __future__ import annotations

from ..._core.events import InputAnswered
from ..._core.ports import ApprovalDecision, ApprovalRequest
from ..._core.ports.input_forms import InputForm
from ..recorder import Recorder
from ..session_context import SessionServices


async def ask_approver(
    services: SessionServices, recorder: Recorder, request: ApprovalRequest, form: InputForm
) -> ApprovalDecision:
    """Return the answer to the form of a request, and store it."""
    await recorder.record()  # An answer may take hours; the user reads the text before it.
    decision = await services.approver.decide(request)
    redact = services.redact
    event = recorder.make_event(
        InputAnswered,
        call_id=request.call_id,
        name=request.tool,
        server=form.server,
        message=redact(form.message),
        allowed=decision.allowed,
        url=redact(form.url),
        why=decision.why,
        values={
            name: redact(value) if isinstance(value, str) else value
            for name, value in (decision.arguments or {}).items()
            if decision.allowed
        },
    )
    await recorder.record(event)
    return decision
