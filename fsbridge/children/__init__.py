"""Child processes: how they start, their protocol and their sandbox. Not here: what the children parse (`formats/`)."""
