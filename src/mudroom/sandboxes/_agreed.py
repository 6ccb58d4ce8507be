"""Numbers that the launching program and the harness agree on. Standard library only."""

STATUS, GATE, DATA = 3, 4, 5
"""Descriptors in the process of a command with `late` limits: where bwrap tells of its child, what it waits for, the first data file."""

MOST = 1 << 19
"""Bytes of a message."""
