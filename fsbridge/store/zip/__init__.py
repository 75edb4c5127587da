"""Zip archives as stores."""
