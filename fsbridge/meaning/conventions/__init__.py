"""The conventions, one module each. Their table and its order are in `reading.py`."""
