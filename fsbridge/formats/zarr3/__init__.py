"""Zarr v3 hierarchies, shards included. Not here: the store, codecs."""
