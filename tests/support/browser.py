"""Chromium without a window, for pages."""

import shutil


def chromium(profile):
    """A driver of Chromium, which keeps what its pages log; `ImportError` if something is missing."""
    from selenium import webdriver

    place = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not place or not shutil.which("chromedriver"):
        raise ImportError(
            "there is no chromium with its chromedriver (apt-get install chromium chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = place
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"),
        *("disable-component-update", "disable-sync", "disable-quic", "disable-dev-shm-usage"),
        f"user-data-dir={profile}",
        "window-size=1200,900",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
