"""The files of one array, and of regions of it: their names, sizes, headers and elements. Not here: the file types."""
