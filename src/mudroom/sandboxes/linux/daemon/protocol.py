"""What the launching program and the harness agree on. Standard library only."""

STATUS_FD, GATE_FD, FILTER_FD = 3, 4, 5
"""Descriptors of bwrap: where it tells of its child, what it waits for, the filter."""

ETC_PLACEHOLDER = "/etc of commands"
"""Stands in bwrap's arguments for the folder that the launching program makes for /etc."""

MARK_VARIABLE = "MUDROOM_CALL"
"""Variable of processes that must not outlive their owner: a path in his temporary folder."""

MAX_MESSAGE_BYTES = 1 << 19
"""Bytes of a message."""
