"""What a call may do: rules with their origin, shell commands read part by part, trust in folders, secrets out of sight."""
