"""What runs in a process of its own, its protocol and its sandbox. Not here: what the children parse (`formats/`)."""
