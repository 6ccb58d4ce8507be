"""Worker processes on a Ray cluster or shared by sessions. Imported only when used."""
