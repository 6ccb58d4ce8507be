"""What the launching program and the harness agree on. Standard library only."""

STATUS, GATE, DATA = 3, 4, 5
"""Descriptors of bwrap: where it tells of its child, what it waits for, the filter."""

ETC = "/etc of commands"
"""Stands in bwrap's arguments for the folder that the launching program makes for /etc."""

MARK = "MUDROOM_CALL"
"""Variable of processes that must not outlive their owner: a path in his temporary folder."""

MOST = 1 << 19
"""Bytes of a message."""
