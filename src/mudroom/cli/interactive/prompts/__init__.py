"""Prompts of files, and the names of other programs' commands."""
