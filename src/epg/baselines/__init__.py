"""Baselines that are trained across tasks: the best fixed policy of a family."""
