"""The layout `zarr3`: the mount is itself an uncompressed Zarr v3 hierarchy. Not here: what other layouts show."""
