"""The MCP server: lets any MCP host run tasks as mudroom children, with budgets and a record."""
