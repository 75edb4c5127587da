"""N5 containers. Not here: the store, codecs."""
