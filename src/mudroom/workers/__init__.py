"""Where runs run: one file a place. A worker turns a brief into a report, and that is all its callers know."""
