"""Notices for the user: at session start, and from the log."""
