"""Prompts of MCP servers at the prompt."""

from __future__ import annotations

from ...actions.prompt_calls import make_filled
from ...actions.prompts import fetch_prompt
from .file_prompts import PromptScreen


async def run_server_prompt(conversation: PromptScreen, name: str, arguments: str) -> bool:
    """Send the prompt of a server. Return False if there is none of this name."""
    session = conversation.session
    if not session.mcp_servers:
        return False
    fetched = await conversation.run_stoppable(fetch_prompt(session, name, arguments))
    if fetched is None:
        # Stopped by the user, if the name can only be a server's.
        return name.startswith("/mcp__")
    filled = make_filled(fetched)
    await conversation.run_prompt(filled.line, filled)
    return True
