"""Help texts and the manual page."""
