"""Operating system services: scratch directories, orphan clean-up, process table, protected names."""
