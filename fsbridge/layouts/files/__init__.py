"""The layout `files`: whole arrays, and regions of them, as ordinary files of the formats that old programs read."""
