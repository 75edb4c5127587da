"""The code that answers the kernel's requests, with its inodes, handles, jobs, pages and read-ahead. Not here: the tree."""
