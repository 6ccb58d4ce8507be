"""MCP servers, hooks and plugins on the command line: lists, changes and tries them."""
