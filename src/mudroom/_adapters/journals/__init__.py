"""Journals: the event records of sessions, in SQLite files or in memory."""
