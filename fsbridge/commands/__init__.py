"""The commands, a module for each: its `parser(program)`, and `run(program, argv)`, which returns the exit code."""
