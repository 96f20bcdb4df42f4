"""Screenshots of a page as a person meets it: light, dark, narrow and printed.

    python shoot.py PAGE.html FOLDER
"""

import base64
import pathlib
import sys

from chromium import chromium


def main(page: str, folder: str) -> None:
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, width, scheme in [("light", 1200, "light"), ("dark", 1200, "dark"), ("narrow", 390, "light")]:
            browser.execute_cdp_cmd(
                "Emulation.setEmulatedMedia",
                {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
            )
            browser.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
            )
            browser.get(pathlib.Path(page).resolve().as_uri())
            image = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
            (out / f"{name}.png").write_bytes(base64.b64decode(image["data"]))
        printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False, "preferCSSPageSize": True})
        (out / "print.pdf").write_bytes(base64.b64decode(printed["data"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
