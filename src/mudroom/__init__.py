"""mudroom: cut a big task into small ones, and give each small one a clean context of its own."""
