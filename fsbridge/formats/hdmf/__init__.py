"""What hdmf-zarr adds to Zarr: links, references, pickled objects. Not here: Zarr itself."""
