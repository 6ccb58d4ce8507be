"""Click definitions: each command parses its flags and calls one action.

The docstring of a command is its help text.
"""
