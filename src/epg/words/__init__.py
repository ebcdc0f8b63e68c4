"""Layer 0, words: the records and settings that cross modules, and the one place where random keys are made."""
