"""Filters for the output of tools: redaction of secrets, marking of prompt injection."""
