"""What commands do: load settings, open sessions, list, export, serve."""
