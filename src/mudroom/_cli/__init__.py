"""The command line: commands (click definitions) > interactive > actions > output."""
