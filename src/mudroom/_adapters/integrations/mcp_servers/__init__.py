"""MCP servers: their configuration files, and the connections to them."""
