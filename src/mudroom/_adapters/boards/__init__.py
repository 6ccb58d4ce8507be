"""Task boards in SQLite files, one file per project, shared by sessions and processes."""
