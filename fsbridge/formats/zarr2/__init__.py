"""Zarr v2 hierarchies. Not here: the store, codecs."""
