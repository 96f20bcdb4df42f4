"""The reports of compare, sweep and adapt in a real browser, made by the program itself on small data."""

import subprocess

import pytest
from selenium.webdriver.common.by import By

from chromium import chromium

SETTINGS = "--epochs 2 --hidden 16 --batch 100 --budget 20 --quiet"
REPORTS = {
    "compare": ("compare data --methods full,lsh-embedding,uniform --seeds 2", 5, 3),
    "sweep": ("sweep data --vary budget=10,20 --vary tables=5,10 --methods lsh-embedding,lsh-label", 4, 4),
    "adapt": ("adapt data --inputs 8 --draws 20", 4, 8),
}


@pytest.fixture(scope="session")
def data(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiments")
    shape = "--classes 200 --features 1000 --train 1000 --test 200 --classes-per-cluster 8"
    subprocess.run([program, "data", "synth", *shape.split(), "--out", "data"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def opened():
    with chromium() as browser:
        yield browser


@pytest.fixture(params=REPORTS)
def report(request, program, data, opened):
    name = request.param
    command, charts, lines = REPORTS[name]
    if not (data / name).exists():
        arguments = [*command.split(), *SETTINGS.split(), "--out", name]
        subprocess.run([program, *arguments], cwd=data, check=True, stdout=subprocess.DEVNULL)
    opened.get_log("browser")
    opened.get((data / name / "report.html").as_uri())
    yield opened, charts, lines
    problems = [entry for entry in opened.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert problems == []


def test_charts_and_tables_are_there(report):
    browser, charts, lines = report
    plots = browser.find_elements(By.CSS_SELECTOR, "figure.chart .plot > svg")
    assert len(plots) == charts and all(plot.is_displayed() for plot in plots)
    drawn = browser.find_elements(By.CSS_SELECTOR, "#chart-1 .series path.line")
    assert len(drawn) == lines
    assert browser.find_elements(By.CSS_SELECTOR, "table.sortable tbody tr")
    foot = browser.find_element(By.TAG_NAME, "footer").text
    assert "lookalike" in foot and "thread" in foot
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_a_line_can_be_hidden(report):
    browser, _, _ = report
    figure = browser.find_element(By.CSS_SELECTOR, "#chart-1")
    button = figure.find_elements(By.CSS_SELECTOR, ".legend button")[0]
    line = figure.find_elements(By.CSS_SELECTOR, ".series path.line")[0]
    assert line.is_displayed()
    button.click()
    assert button.get_attribute("aria-pressed") == "false" and not line.is_displayed()


def test_a_narrow_window_does_not_scroll_sideways(report):
    browser, _, _ = report
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= 390
