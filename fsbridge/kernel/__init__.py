"""What the kernel's requests meet: handlers, inodes, handles, replies, worker jobs, pages and read-ahead. Not here: the tree."""
