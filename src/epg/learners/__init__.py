"""Learners: what turns a window of experience into a policy update."""
