"""Baselines that are trained across tasks: the best fixed policies of a family, MAML, RL²."""
