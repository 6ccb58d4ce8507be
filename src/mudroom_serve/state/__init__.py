"""The state of the service beside the journals, in an SQLite file that all its processes share."""
