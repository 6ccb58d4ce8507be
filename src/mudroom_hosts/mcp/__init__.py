"""The MCP server: any MCP host runs tasks as children of mudroom, with budgets and a record."""
