"""ACP: editors drive sessions over the Agent Client Protocol, showing children as subagents."""
