"""Click definitions: each command parses its flags and calls one action."""
