"""Tokens of hosts over HTTP: those of `mudroom serve`, with the rights that a task needs."""

from __future__ import annotations

from mudroom.driving import Refusal
from mudroom_serve.state.tokens import TokenRecords

from .host_task import Owner

WORKSPACE = "default"
"""Name of the folder of the server, for tokens that are for some workspaces only."""

_WRONG_TOKEN = Refusal(
    401,
    "wrong_token",
    "the token is missing or wrong. Send the header `Authorization: Bearer TOKEN`; "
    "`mudroom serve token add OWNER` makes a token",
)


async def find_owner(tokens: TokenRecords, secret: str) -> Owner | Refusal:
    """Return the owner of a token, or why it cannot be used.

    Arguments:
        secret: text of the token, "" for none.
    """
    token = await tokens.find(secret)
    if token is None:
        return _WRONG_TOKEN
    if "run" not in token.scopes:
        return Refusal(403, "wrong_scope", "the token does not have the scope run")
    if token.workspaces and WORKSPACE not in token.workspaces:
        message = f"the token is not for the workspace {WORKSPACE}"
        return Refusal(403, "wrong_workspace", message)
    if token.usd_per_day is not None or token.tokens_per_day is not None:
        return Refusal(
            403,
            "daily_limits",
            "the token has limits for each day, which only `mudroom serve` counts. Use a token "
            "without them, and --max-budget-usd and --total-usd",
        )
    return Owner(name=token.owner, agents=token.agents, can_answer="answer" in token.scopes)
