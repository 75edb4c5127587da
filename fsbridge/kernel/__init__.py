"""What the kernel's requests meet: requests, inodes, handles, replies, jobs, pages, read-ahead. Not here: the tree."""
