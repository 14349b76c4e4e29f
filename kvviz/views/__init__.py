"""Figures: numbers from records and metrics in, a Plotly figure out, as a plain dict.

A dict `{"data": [...], "layout": {...}}` is what plotly.js draws. Building it through
`plotly.graph_objects` validates every property and costs ten times as much, each frame; the
tests do that validation instead.
"""
