"""Command-line commands: click definitions only."""
