"""Scenarios: small JSON files that replay an incident exactly, on the layouts and the scheduler
that serve the live page.

text -> read -> Scenario -> replay (ops: one memory, one operation after the other; requests: the
step rule of continuous batching) -> a report of plain values, and frames to draw.
"""
