"""Logins of MCP servers over HTTP: OAuth, and the tokens on disk."""
