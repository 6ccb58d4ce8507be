"""Linux sandboxes: bubblewrap (tier full) and Landlock (tier file), with a daemon for each."""
