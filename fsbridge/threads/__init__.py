"""Running something elsewhere: worker threads, waiting with a deadline, and what a forked process makes again."""
