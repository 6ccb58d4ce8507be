"""Click definitions: each command has flags and a help text, and calls one action."""
