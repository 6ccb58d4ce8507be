"""The approver for sessions without a user, which refuses whatever needs confirmation."""

from __future__ import annotations

from .._core.ports import ApprovalDecision, ApprovalRequest


class DenyAllApprover:
    """The port Approver when there is no one to ask."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Refuse at once."""
        return ApprovalDecision(False, "no user is present to confirm it")
