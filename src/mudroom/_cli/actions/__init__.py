"""What each command does, without click. A returned int is the exit code."""
