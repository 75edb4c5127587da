"""What N5 and Zarr share: documents and chunks under keys of a store. Not here: either format."""
