"""Help texts of the command line."""
