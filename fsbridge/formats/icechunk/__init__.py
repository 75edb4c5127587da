"""Icechunk repositories: a history of Zarr v3 hierarchies in files that are written once."""
