"""What the Streamlit pages share: controls, the live channel, frames. Pages stay stories."""
