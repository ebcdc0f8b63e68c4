"""Families: distributions over tasks. A registered family is a tested one (tests/test_families.py iterates)."""
