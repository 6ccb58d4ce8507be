"""Operating system services: scratch directories, clean-up of orphans, protected names."""
