"""The bench page: what was measured, beside its targets and floors."""

from kvviz.ui.bench import bench_page

bench_page()
