"""Journals of sessions in a PostgreSQL database. Imported only when such a store is used."""
