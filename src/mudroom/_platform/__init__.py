"""Operating system services: scratch directories, orphan clean-up, processes, protected names."""
