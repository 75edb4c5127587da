"""Hangar repositories. This file imports nothing, because the child that reads LMDB starts through it."""
