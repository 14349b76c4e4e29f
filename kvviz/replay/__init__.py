"""Traces of production size through dry lanes: step by step, or by events in compiled loops."""
