"""The tree of a source without a mount, for commands and for fsspec, and long work over it such as exports.

Not here: what the tree shows (`layouts/`), the commands (`commands/`).
"""
