"""kvviz: real KV caches side by side, and why one of them refuses.

The package stays import-light: importing it loads nothing but this string.
"""

__version__ = "0.1.0"
