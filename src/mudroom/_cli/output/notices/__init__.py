"""Notices for the user: at the start of a session, and from the log."""
