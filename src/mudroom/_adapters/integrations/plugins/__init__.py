"""Plugins: folders with agents, skills, commands, output styles, hooks and MCP servers."""
