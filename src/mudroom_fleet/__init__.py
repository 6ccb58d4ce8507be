"""Worker processes on a Ray cluster, and those that sessions share. Imported only when used."""
