"""Text files as bytes: encodings, line ends, and the places that an edit means."""
