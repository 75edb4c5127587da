"""The elements of any region of an array, in a file's order, out of the chunks that they lie in. Not here: files."""
