"""Journals in SQLite files, one file per session."""
