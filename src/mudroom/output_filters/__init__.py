"""Filters for tool output: redaction of secrets, marking of prompt injection."""
