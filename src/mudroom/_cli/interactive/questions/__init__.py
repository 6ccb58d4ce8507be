"""Questions to the user: choices, approvals of tool calls, trust in a folder."""
