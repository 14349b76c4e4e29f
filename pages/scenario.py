"""The scenario page: an incident, replayed exactly, a picture for each step."""

from kvviz.ui.scenario import scenario_page

scenario_page()
