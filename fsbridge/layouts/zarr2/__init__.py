"""The layout `zarr2`: the mount is an uncompressed Zarr v2 hierarchy. Not here: what other layouts show."""
