"""Hangar repositories. Empty on purpose: the child that reads LMDB imports from below."""
