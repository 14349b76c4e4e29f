"""Finds a Chromium for the browser tests, or gets one.

As a script: Debian's `chromium` when root and apt is there, else Playwright's own build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find() -> str | None:
    """Path of an installed Chromium or Chrome; None: Playwright's own must be used."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        path = shutil.which(name)
        if path:
            return path
    return None


def get() -> None:
    """Install one. Raises CalledProcessError when that fails."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {
            "stdout": subprocess.DEVNULL,
            "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        }
        subprocess.run(["apt-get", "update", "-qq"], check=True, **quiet)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
            check=True,
            **quiet,
        )
        return
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


if __name__ == "__main__":
    if find() is None:
        get()
    print(f"browser tests use {find() or 'the Chromium of Playwright'}")
