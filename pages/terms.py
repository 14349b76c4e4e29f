"""The terms: every formula that the pages use, and who says so."""

from kvviz.ui.terms import terms_page

terms_page()
