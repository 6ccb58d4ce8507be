"""Lets other programs drive sessions: editors, agent SDKs, and MCP hosts."""
