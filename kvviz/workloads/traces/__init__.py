"""Files of real requests: `read.read_trace` finds the format by content and reads it into a
`trace.Trace`; `arrivals` and `scaling` change one. Lengths and times only: request text is passed
over, never kept, and nothing in a file is ever evaluated or unpickled.
"""
