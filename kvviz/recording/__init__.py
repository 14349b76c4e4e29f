"""Recordings: a run as one file. Snapshots, events and series of every lane, and where and when
it ran.

A `.kvviz` file is a zip without compression: `manifest.json`, and Parquet tables that any other
tool can read too (see `schema`). Nothing in it is ever executed or unpickled.
"""
