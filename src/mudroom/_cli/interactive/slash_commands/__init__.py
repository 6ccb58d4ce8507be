"""Slash commands of the prompt: a registry and one function per command."""
