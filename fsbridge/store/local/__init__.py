"""A directory on a local disk as a store."""
