"""Programs of others that a session uses: MCP servers and hooks."""
