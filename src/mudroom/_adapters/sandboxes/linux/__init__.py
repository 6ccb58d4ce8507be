"""Linux sandboxes: bubblewrap (tier full) and Landlock (tier file), each with a daemon."""
