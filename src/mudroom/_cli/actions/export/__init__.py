"""`mudroom export`: a session in the form that was asked for, or its spans."""
