"""The lesson: why KV caches fragment, in eight steps on real tensors, and three questions."""

from kvviz.ui.lesson import lesson_page

lesson_page()
