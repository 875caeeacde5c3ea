"""Runs experiments: tasks, limits, results, plots. See `README.md` of the folder above."""
