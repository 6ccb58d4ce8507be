"""What each command does, without click. An int that a function returns is the exit code."""
