"""JSON Schemas: a form that every provider accepts, and values read as a schema means them."""
