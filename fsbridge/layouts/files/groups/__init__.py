"""The files of a group, and what stands around its arrays: images, pyramids, tables."""
