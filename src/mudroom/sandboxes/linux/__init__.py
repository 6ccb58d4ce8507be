"""Linux sandboxes: bubblewrap and Landlock, run by a daemon process."""
