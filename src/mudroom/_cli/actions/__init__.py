"""What each command does, without click. A function that returns an int returns the exit code."""
