"""The programs behind `scripts/bench`: data, contenders, rounds, report. Not here: anything fsbridge needs."""
