"""Sessions in SQLite files."""
