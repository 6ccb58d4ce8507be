"""Third-party programs that a session uses: MCP servers and hooks."""
