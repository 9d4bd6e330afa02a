"""Refuse a build whose links are files, because the wheel would lack what they lead to."""

import runpy
import sys
from pathlib import Path

from setuptools import setup

try:
    runpy.run_path("memenvs/core/links.py")["check_links"](Path("memenvs"))
except ImportError as error:
    sys.exit(f"memenvs cannot be built: {error}")

setup()
