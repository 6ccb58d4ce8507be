"""MCP servers and hooks at the command line: which are used, how they are listed and changed."""
