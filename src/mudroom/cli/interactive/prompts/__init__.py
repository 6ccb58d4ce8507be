"""Prompts of the user: attached files, commands of files, names of other programs' commands."""
