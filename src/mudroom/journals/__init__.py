"""Where the record of a session is kept: one SQLite file each, or memory."""
