"""MCP servers: their configuration files and connections."""
