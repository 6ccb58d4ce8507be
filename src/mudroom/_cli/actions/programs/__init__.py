"""MCP servers, hooks and plugins at the command line: listing, changing and trying them."""
