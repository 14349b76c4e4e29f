"""Benchmarks: ratios within one run, beside the target they are held to. Never a test."""
