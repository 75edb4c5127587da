"""`scripts/remote-check`: stores on other people's servers, read through real mounts and compared with the same on disk."""
