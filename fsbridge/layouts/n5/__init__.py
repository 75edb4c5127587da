"""The layout `n5`: the mount is an uncompressed N5 container. Not here: what other layouts show."""
