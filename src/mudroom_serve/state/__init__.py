"""The service's state besides the journals, in an SQLite file shared by all its processes."""
