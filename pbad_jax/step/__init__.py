"""One step: guard, predict, solve, judge, keep."""
