"""Approver for sessions without a user: refuses every tool call that needs confirmation."""

from __future__ import annotations

from .._core.ports import ApprovalDecision, ApprovalRequest


class DenyAllApprover:
    """The port Approver when no one can be asked."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Refuse at once."""
        return ApprovalDecision(False, "no user is present to confirm it")
