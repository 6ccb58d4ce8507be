"""Permission rules: which tool calls are allowed, denied or need confirmation, and which folders are trusted."""
