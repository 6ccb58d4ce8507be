"""Text files as bytes: encodings, line ends, and the places an edit means."""
