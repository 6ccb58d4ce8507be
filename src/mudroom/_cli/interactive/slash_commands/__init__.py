"""The prompt's slash commands: a registry and one function per command."""
