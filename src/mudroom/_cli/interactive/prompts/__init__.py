"""Names of slash commands that other programs have."""
