"""ACP: editors drive sessions with the Agent Client Protocol, and show children as subagents."""
