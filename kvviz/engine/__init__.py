"""Sequences, the scheduler, one step, and what is kept of it. Integers only, no torch."""
