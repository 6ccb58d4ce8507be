"""Transport to worker processes on this machine: a program and a socket pair for each one."""
