"""The report: a recording as one HTML file that works without a network and without kvviz."""
