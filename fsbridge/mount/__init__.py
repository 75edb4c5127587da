"""The life of a mount, from the command to the unmount. Not here: the kernel's requests (`kernel/`)."""
