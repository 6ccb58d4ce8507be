"""`mudroom export`: writes a session in the requested format, or sends its spans."""
