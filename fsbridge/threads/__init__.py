"""Running something elsewhere: threads, waiting with a deadline, and what a forked process makes again.

One call that is waited for is an `Answer`, and many are `each` (`parallel.py`). Work that can be left undone is for
`Workers` (`workers.py`). Whatever runs by itself is begun by `start`, `start_now` or `later` (`starting.py`), as all of
these threads are. Requests of the kernel have lanes of their own (`kernel/lanes.py`).
"""
