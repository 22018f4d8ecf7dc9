"""Measurements: rivals and floors, timed side by side in one process and never asserted in tests."""
