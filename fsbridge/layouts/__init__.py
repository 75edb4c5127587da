"""Layouts: pure functions from the model to the tree; they never see stores or codecs."""
